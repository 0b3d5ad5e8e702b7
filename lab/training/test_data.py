"""`python3 -m unittest lab.training.test_data`: the generator, with Python's standard library alone."""

import json
import os
import random
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from . import __main__ as main
from . import evaluate, hints, keywords, phrasing, plain, procedural, related, reword, scenes, suite, tables, wordnet
from .render import USER, head, render, turn

TOOLS, KEPT = scenes.load(main.TABLES)
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
TYPES = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "array": list,
    "object": dict,
}


def conversation():
    call = {"type": "function", "function": {"name": "get_weather", "arguments": {"city": "São Paulo"}}}
    return [
        {"role": "user", "content": "Weather in São Paulo?"},
        {"role": "assistant", "content": "I'll look.", "tool_calls": [call, call]},
        {"role": "tool", "content": '{"sky": "clear"}'},
        {"role": "assistant", "content": "It is clear."},
    ]


class Prompt(unittest.TestCase):
    def test_a_later_prompt_starts_with_the_earlier_one(self):
        for style in ("delimited", "hermes"):
            whole = render(conversation(), [WEATHER], style)
            for count in (1, 3):
                self.assertTrue(whole.startswith(render(conversation()[:count], [WEATHER], style, True)))

    def test_calls_are_written_in_both_styles(self):
        call = '{"name": "get_weather", "arguments": {"city": "São Paulo"}}'
        delimited = f"### TOOL_CALL_START ###\n{call}\n### TOOL_CALL_END ###"
        self.assertIn(f"<|assistant|>I'll look.\n{delimited}\n{delimited}<|end|>", render(conversation(), [WEATHER]))
        self.assertIn(f"<tool_call>\n{call}\n</tool_call><|end|>", render(conversation(), [WEATHER], "hermes"))

    def test_no_system_turn_without_system_text_and_tools(self):
        self.assertEqual(
            render([{"role": "user", "content": "Hi"}], [], "delimited", True), "<|user|>Hi<|end|><|assistant|>"
        )


class Data(unittest.TestCase):
    def test_scenes_repeat_from_the_seed(self):
        # In processes of their own: the order of a set is fixed within one.
        program = "from lab.training import test_data as t; print(list(t.scenes.scenes(t.TOOLS, 60, 5, easy=20)))"
        texts = [
            subprocess.run(
                [sys.executable, "-c", program],
                cwd=main.ROOT,
                env={**os.environ, "PYTHONHASHSEED": seed},
                capture_output=True,
                check=True,
            ).stdout
            for seed in "12"
        ]
        self.assertEqual(*texts)

    def test_calls_name_offered_tools_and_known_arguments(self):
        for scene in scenes.scenes(TOOLS, 700, 3, easy=50):
            offered = {tool["function"]["name"]: tool["function"]["parameters"] for tool in scene.tools}
            self.assertEqual(len(offered), len(scene.tools))
            for kind, messages in scene.branches:
                for message in messages:
                    for call in message.get("tool_calls", []):
                        schema = offered[call["function"]["name"]]
                        # Read up to the name alone.
                        if kind != "match":
                            self.check(call["function"]["arguments"], schema)

    def test_every_phrase_gives_arguments_of_their_types(self):
        maker = scenes.Scenes(TOOLS, random.Random(3))
        for tool in TOOLS:
            for phrase in tool.phrases:
                asked = maker.ask(tool, "snake", phrase)
                for _, arguments in asked.calls:
                    with self.subTest(asked.text):
                        self.check(arguments, asked.concrete.function["parameters"])

    def check(self, arguments, schema):
        self.assertLessEqual(set(schema.get("required", [])), set(arguments))
        for name, value in arguments.items():
            self.check_value(value, schema["properties"][name])

    def check_value(self, value, schema):
        self.assertIsInstance(value, TYPES[schema["type"]])
        if "enum" in schema:
            self.assertIn(value, schema["enum"])
        if schema["type"] == "object":
            self.check(value, schema)
        for item in value if schema["type"] == "array" else []:
            self.check_value(item, schema["items"])

    @mock.patch.object(scenes, "PLAIN", 0)
    @mock.patch.object(scenes, "AKIN", 0)
    def test_a_labelled_question_tells_what_each_value_is_for(self):
        rng = random.Random(4)
        maker = scenes.Scenes(TOOLS, rng)
        values = bare = 0
        for _ in range(300):
            tool = procedural.labelled_tool(rng, maker.labels)
            words = [
                set(p.path.split(".")[-1].split("_")) for p in tool.parameters if p.kind not in ("given", "family")
            ]
            self.assertEqual(len(set().union(*words)), sum(map(len, words)), "a word of two labels tells nothing")
            asked = maker.pose(maker.concrete(tool, "snake"))
            for path, (text, _) in asked.drawn.items() if asked else ():
                self.assertIn(text, asked.text)
                if tool.parameter(path).telling:
                    form = procedural.form(tool.parameter(path).kind)
                    alike = [p for p in tool.parameters if p.telling and procedural.form(p.kind) == form]
                    self.assertTrue(len(alike) == 1 or form in ("word", "choice"), asked.text)
                    bare += 1
                elif tool.parameter(path).kind not in ("given", "family"):
                    self.assertTrue(
                        set(path.split(".")[-1].split("_")) & set(re.findall(r"\w+", asked.text)), asked.text
                    )
                    values += 1
        self.assertGreater(values, 300)
        self.assertGreater(bare, 150)

    def test_a_plain_question_is_in_the_tools_own_words(self):
        rng = random.Random(6)
        maker = scenes.Scenes(TOOLS, rng)
        asked = 0
        for tool in rng.sample(TOOLS, 300):
            made = plain.question(rng, maker.concrete(tool, "snake"), maker.verbs, maker.endless)
            if made:
                text = made[1][0].lower()
                own = set(re.findall(r"\w+", " ".join(tool.names + tool.descriptions).lower().replace("_", " ")))
                self.assertTrue(
                    not own or any(word in own or word + "s" in own for word in re.findall(r"\w+", text)), text
                )
                asked += 1
        self.assertGreater(asked, 150)

    def test_an_akin_question_has_words_that_its_tools_lack_and_a_foreign_one_none_that_they_have_to_do_with(self):
        rng = random.Random(8)
        maker = scenes.Scenes(TOOLS, rng)
        akin = foreign = 0
        for tool in rng.sample(TOOLS, 200):
            maker.blank([maker.concrete(tool, "snake")])
            parts = tables.expand(rng, rng.choice(tool.phrases)[1])
            texts = [part for part in parts if isinstance(part, str)]
            refs = [part for part in parts if not isinstance(part, str)]
            for change in (maker.akin, maker.foreign):
                made = change(parts)
                self.assertEqual([part for part in made if not isinstance(part, str)], refs)
                new = reword.stems(*(part for part in made if isinstance(part, str))) - reword.stems(*texts)
                if change == maker.akin:
                    self.assertFalse(new & maker.said, made)
                    akin += bool(new)
                else:
                    self.assertFalse(new & maker.known, made)
                    foreign += bool(new)
        self.assertGreater(akin, 100)
        self.assertGreater(foreign, 100)

    def test_a_reworded_tool_shares_its_new_words_with_its_questions(self):
        rng, changed = random.Random(7), 0
        for tool in TOOLS:
            new = iter(("zorb", "kelm", "vusk"))
            made = reword.reworded(rng, tool, lambda: next(new))
            if made == tool:
                self.assertEqual(reword.shared(tool), [])
                continue
            changed += 1
            known = re.compile("zorb|kelm|vusk", re.IGNORECASE)
            self.assertRegex(" ".join(made.names + made.descriptions), known)
            for _, phrase in made.phrases:
                self.assertRegex(" ".join(reword.texts(phrase)), known)
            # What is asked for stays as it was.
            self.assertIs(made.parameters, tool.parameters)
            tables.check(made)
        self.assertGreater(changed, len(TOOLS) / 2)

    def test_a_new_word_keeps_case_and_ending(self):
        told = reword.instead(
            "Washes the car, WASH it; washing_machine, brushed, tidy", {"wash": "zorb", "tid": "kelm"}
        )
        self.assertEqual(told, "Zorbs the car, ZORB it; zorbing_machine, brushed, kelm")

    def test_related_words_are_read_from_wordnet(self):
        files = {
            "cntlist.rev": "boil%2:30:01:: 1 9\nboil%1:26:00:: 1 2",
            "data.noun": "  1 This is the licence.\n"
            '0001 06 n 02 kettle 0 boiler 0 001 @ 0002 n 0000 | a pot to boil water in; "watch the kettle"\n'
            "0002 06 n 01 pot 0 001 ~ 0001 n 0000 | metal cookware",
            "data.verb": "0003 30 v 01 boil 0 001 + 0001 n 0101 01 + 02 00 | bring water to heat",
            "index.noun": "kettle n 1 1 @ 1 0 0001\nboiler n 1 1 @ 1 0 0001\npot n 1 1 ~ 1 0 0002",
            "index.verb": "boil v 1 1 + 1 1 0003",
        }
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            for kind in ("noun", "verb", "adj", "adv"):
                (folder / f"data.{kind}").write_text(files.get(f"data.{kind}", ""))
                (folder / f"index.{kind}").write_text(files.get(f"index.{kind}", ""))
            (folder / "cntlist.rev").write_text(files["cntlist.rev"])
            read = wordnet.WordNet(folder)
        self.assertEqual(read.base("boiling"), "boil")
        # Three of three meanings would otherwise be said to be explained by each word.
        with mock.patch.object(wordnet, "EXPLAINS_ALL", 1):
            texts = ["boil the kettle", "boil a kettle in a pot", "boil the kettle on the heat", "water"]
            self.assertEqual(
                wordnet.related(read, texts), {"boil": ["kettle", "water", "heat"], "kettle": ["pot", "boil", "water"]}
            )

    def test_what_has_to_do_with_two_tools_is_near_neither(self):
        boil, pot = related.read()["boil"], related.read()["pot"]
        self.assertIn("kettle", boil)
        self.assertIn("metal", pot)
        one, other, third = related.near(["Boils it.", "Paints a pot.", "Weighs metal, and how it changes."])
        self.assertIn("simmer", one)
        self.assertIn("kettl", one)
        self.assertNotIn(reword.stem("metal"), other, "it is said")
        self.assertNotIn(reword.stem("change"), one, "it is said")
        self.assertFalse(one.keys() & other.keys() | one.keys() & third.keys() | other.keys() & third.keys())

    def test_a_keyword_is_the_called_tools_alone(self):
        maker, called, refused = scenes.Scenes(TOOLS, random.Random(8)), 0, 0
        around = {key for _, _, key in keywords.words(" ".join(keywords.ASKS))}
        for _ in range(60):
            scene = maker.matching()
            lines = [scenes.told(tool["function"]) for tool in scene.tools]
            tells = [{*own, *near} for own, near in zip(keywords.own(lines), related.near(lines))]
            own = dict(zip([tool["function"]["name"] for tool in scene.tools], tells))
            for _, (question, answer) in scene.branches:
                said = {key for _, _, key in keywords.words(question["content"])}
                shares = {name: len(said & mine) for name, mine in own.items()}
                for call in answer.get("tool_calls", []):
                    mine = shares.pop(call["function"]["name"])
                    self.assertTrue(mine > 0 and mine >= max(shares.values(), default=0), question["content"])
                    called += 1
                if "tool_calls" not in answer:
                    self.assertFalse((said - around) & related.known(lines), question["content"])
                    refused += 1
        self.assertGreater(called, 300)
        self.assertGreater(refused, 60)

    def test_free_text_is_one_value_with_its_commas(self):
        free, divided = 0, 0
        maker = scenes.Scenes(TOOLS, random.Random(2))
        for tool in maker.wordy * 4:
            asked = maker.pose(maker.concrete(tool, "snake"))
            if asked and maker.open(asked):
                text = list(asked.drawn.values())[-1][0]
                free += 1
                divided += ", " in text
                self.assertTrue(asked.text.rstrip('."').endswith(text.rstrip('."')), asked.text)
                self.assertEqual(len(asked.calls), 1)
                self.assertIn(json.dumps(text)[1:-1], json.dumps(asked.calls[0][1]))
        self.assertGreater(divided, free * 0.1)
        self.assertGreater(free, 100)

    def test_a_name_inside_another_object_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "domains.txt"
            path.write_text("@ yard\nput fence : Puts up a fence.\n- length, size.length! int(1,9)\n! put {length} m\n")
            with self.assertRaisesRegex(ValueError, "put fence: length has a name inside another object"):
                tables.load(path)

    @mock.patch.object(scenes, "LAST", 0)
    def test_every_kind_of_conversation_comes_up(self):
        kinds = {kind for scene in scenes.scenes(TOOLS, 300, 4, easy=0) for kind, _ in scene.branches}
        self.assertEqual(kinds, {"call", "choice", "parallel", "irrelevance", "follow-up", "talk", "match"})

    @mock.patch.object(scenes, "LAST", 0)
    def test_a_mix_of_decisions_has_more_that_no_tool_fits_and_more_names_alone(self):
        def share(mix):
            made = scenes.scenes(TOOLS, 400, 4, easy=0, mix=mix)
            kinds = [kind for scene in made for kind, _ in scene.branches if kind != "match"]
            return sum(kind in ("irrelevance", "choice") for kind in kinds) / len(kinds)

        self.assertGreater(share("decisions"), share("all") + 0.05)

    def test_results_are_json_and_text(self):
        told = [
            message["content"]
            for scene in scenes.scenes(TOOLS, 400, 4, easy=0)
            for _, messages in scene.branches
            for message in messages
            if message["role"] == "tool"
        ]
        written = sum(content.startswith("{") for content in told)
        self.assertTrue(len(told) * 0.3 < written < len(told) * 0.8, f"{written} of {len(told)} results are JSON")

    def test_a_failure_is_said_and_not_taken_for_a_result(self):
        failed = 0
        for scene in scenes.scenes(TOOLS, 400, 4, easy=0):
            for _, messages in scene.branches:
                told = [message["content"] for message in messages if message["role"] == "tool"]
                said = " ".join(message["content"] for message in messages if message["role"] == "assistant")
                for content in told:
                    if content.startswith("error: "):
                        failed += 1
                        self.assertIn("That did not work: ", said)
        self.assertGreater(failed, 10)

    def test_a_call_made_again_is_answered_with_the_engines_remark(self):
        engine = (main.ROOT / "crates/callwright/src/session/remarks.rs").read_text()
        for remark in (phrasing.REPEATED, phrasing.UNAVAILABLE):
            self.assertIn(f'"{remark}"', engine)
        found = 0
        for scene in scenes.scenes(TOOLS, 800, 4, easy=0):
            for _, messages in scene.branches:
                for before, call, told, answer in zip(messages, messages[1:], messages[2:], messages[3:]):
                    result, _, remark = told["content"].rpartition("\n")
                    if told["role"] == "tool" and remark in (phrasing.REPEATED, phrasing.UNAVAILABLE):
                        found += 1
                        self.assertEqual((before["content"], call["role"]), (result, "assistant"))
                        self.assertTrue(answer["content"] and "tool_calls" not in answer)
        self.assertGreater(found, 5)


class Hints(unittest.TestCase):
    """With a token for each character."""

    TOOLS = [
        {"type": "function", "function": {"name": name, "description": text, "parameters": parameters}}
        for name, text, parameters in (
            ("open_gate", "Opens a gate.", {"properties": {"gate": {"type": "string"}, "speed": {"type": "integer"}}}),
            ("ring", "Rings a bell.", {"properties": {}}),
        )
    ]

    def setUp(self):
        self.prefix = head("", self.TOOLS)
        self.hints = hints.Hints(self.TOOLS, self.prefix, self.tokens(self.prefix))

    def tokens(self, text):
        return mock.Mock(ids=[*map(ord, text)], offsets=[(place, place + 1) for place in range(len(text))])

    def answered(self, question, *calls):
        calls = [{"function": {"name": name, "arguments": arguments}} for name, arguments in calls]
        turns = {"role": "user", "content": question}, {"role": "assistant", "content": "", "tool_calls": calls}
        return "".join(map(turn, turns))

    def test_words_and_answers_tell_their_tool(self):
        text = self.answered("Opening bells", ("ring", {}))
        points = self.hints.pointed(text, self.tokens(text))
        told = {text[: place + 1].rpartition(">")[2][-10:]: number for place, number in enumerate(points) if number}
        self.assertEqual(told, {"Opening": 1, "ning bells": 2, "": 2, '{"name": "': 2})

    def test_an_answer_without_a_call_tells_that(self):
        text = turn({"role": "user", "content": "Hi"}) + turn({"role": "assistant", "content": "Hello."})
        self.assertEqual([n for n in self.hints.pointed(text, self.tokens(text)) if n], [hints.NONE])

    def test_what_is_copied_is_found_where_it_stands(self):
        text = self.answered('Gate "7 b", speed 3.', ("open_gate", {"gate": "7 b", "speed": 3}))
        found = {}
        for place, source in enumerate(self.copied(text)):
            if source:
                self.assertEqual((self.prefix, text)[source[0]][source[1]], text[place + 1])
                found.setdefault(source[0], []).append(text[place + 1])
        self.assertEqual(
            {place: "".join(copied) for place, copied in found.items()}, {0: "open_gategatespeed", 1: "7 b3"}
        )

    def copied(self, text):
        return self.hints.copied(self.hints.copies(text), self.tokens(text))

    def valued(self, question, *calls):
        text = self.answered(question, *calls)
        parts = self.hints.valued(text, list(self.hints.copies(text)), self.tokens(text))
        return "".join(" BI-"[part] for part in parts[len(USER) :][: len(question)])

    def test_values_begin_and_end(self):
        call = ("open_gate", {"gate": "7 b", "speed": 3})
        self.assertEqual(self.valued("Gate 7 b, speed 3.", call), "-----BII--------B-")
        # Which of the threes is meant is not known, and what has an escape is written otherwise.
        self.assertEqual(self.valued("Gate 7 b, 3, speed 3.", call), "     BII             ")
        self.assertEqual(self.valued('Gate "7", speed 3.', ("open_gate", {"gate": '"7"', "speed": 3})).strip(), "B")
        self.assertEqual(self.valued("Ring.", ("ring", {})).strip(), "")

    def linked(self, question, arguments):
        """Which places of the question go together, and for each value in the call the label in the question."""
        text = self.answered(question, ("open_gate", arguments))
        found = self.hints.linked(text, list(self.hints.copies(text)), self.tokens(text))
        links = {place - len(USER): link - len(USER) for place, link in enumerate(found) if link}
        before = {text[place + len(USER) + 1]: link for place, link in links.items() if place > len(question)}
        return {place: link for place, link in links.items() if place < len(question)}, before

    def test_values_go_with_their_labels(self):
        both = {"gate": "b", "speed": 3}
        # The later one looks at the earlier one, whichever that is: what a word is for is said before it or after.
        self.assertEqual(self.linked("Gates: b, 3 as speed.", both), ({7: 4, 19: 10}, {"b": 4, "3": 19}))
        # Another value stands between, the word is too far away, or two keys have it.
        self.assertEqual(self.linked("Speed b 3.", both), ({}, {}))
        self.assertEqual(self.linked("The gate that we open today is b.", {"gate": "b"}), ({}, {}))
        self.assertEqual(
            hints.labels({"properties": {"gate_no": {"items": {"properties": {"gate_id": {}}}}, "lamp": {}}}),
            {"gate_no": {"no"}, "gate_id": {"id"}, "lamp": {"lamp"}},
        )

    def test_what_stands_twice_has_no_place(self):
        text = self.answered("Gate 3, speed 3.", ("open_gate", {"gate": "3", "speed": 3}))
        self.assertNotIn(1, [source[0] for source in self.copied(text) if source])

    def test_words_of_one_stem_are_one(self):
        text = "Open opens openGate gates the"
        found = [number for number in hints.words(text, self.tokens(text)) if number]
        self.assertEqual([found.index(number) for number in found], [0, 0, 0, 3, 3])


class Suite(unittest.TestCase):
    def test_it_is_what_the_table_makes(self):
        made = "".join(
            json.dumps(case, ensure_ascii=False) + "\n"
            for case in suite.make(tables.load(main.TABLES / "suite.txt"), 1)
        )
        self.assertEqual(main.SUITE.read_text(), made)

    def test_one_of_the_domains_kept_out_has_their_tools_alone(self):
        made = suite.make(KEPT, 1)
        words = {re.sub("[^a-z0-9]", "", name) for tool in KEPT for name in tool.names}
        self.assertEqual({case["category"] for case in made}, suite.COUNTS.keys() - {"awkward"})
        for name in {tool["function"]["name"] for case in made for tool in case["tools"]}:
            self.assertIn(re.sub("[^a-z0-9]", "", name.rsplit(".")[-1].lower()), words)

    def test_training_shares_no_domain_and_no_tool_with_it(self):
        held = tables.load(main.TABLES / "suite.txt")
        learned = TOOLS + KEPT
        self.assertFalse({tool.domain for tool in held} & {tool.domain for tool in learned})
        self.assertFalse({n for tool in held for n in tool.names} & {n for tool in learned for n in tool.names})

    def test_no_scene_has_a_tool_name_or_a_question_of_it(self):
        barred = main.barred()
        for scene in scenes.scenes(TOOLS, 400, 2, barred, easy=50):
            self.assertFalse(barred & scene.names())
            for _, messages in scene.branches:
                self.assertFalse(barred & {message["content"] for message in messages if message["role"] == "user"})

    def test_a_barred_name_and_a_barred_question_are_refused(self):
        made = list(scenes.scenes(TOOLS, 50, 1, easy=0))
        name = made[-1].tools[0]["function"]["name"]
        question = made[0].branches[0][1][0]["content"]
        again = list(scenes.scenes(TOOLS, 50, 1, {name, question}, easy=0))
        self.assertNotIn(name, {name for scene in again for name in scene.names()})
        self.assertNotIn(question, str(again))


class Judging(unittest.TestCase):
    EXPECTED = [{"name": "f", "arguments": {"n": 2.0}}]

    def events(self, arguments='{"n": 2}', complete=True, finish="tool_calls"):
        return [
            {"type": "call_start", "id": "1", "name": "f"},
            {"type": "call_arguments", "id": "1", "delta": arguments},
            {"type": "call_end", "id": "1", "complete": complete, "valid": False},
            {"type": "done", "finish_reason": finish},
        ]

    def test_answers_are_classed(self):
        self.assertTrue(evaluate.judge(self.events(), self.EXPECTED)["exact"])
        self.assertFalse(evaluate.judge(self.events(complete=False), self.EXPECTED)["formed"])
        self.assertFalse(evaluate.judge(self.events('{"n": '), self.EXPECTED)["formed"])
        self.assertFalse(evaluate.judge(self.events(finish="length"), self.EXPECTED)["formed"])
        self.assertFalse(evaluate.judge(self.events() + [{"type": "repair"}], self.EXPECTED)["formed"])
        wrong = evaluate.judge(self.events('{"n": 3}'), self.EXPECTED)
        self.assertTrue(wrong["names"] and not wrong["exact"])
        self.assertFalse(evaluate.judge(self.events(), [])["exact"])
        said = [{"type": "text", "delta": "None."}, {"type": "done", "finish_reason": "stop"}]
        self.assertTrue(evaluate.judge(said, [])["exact"])
        self.assertFalse(evaluate.judge(said, self.EXPECTED)["attempted"])
        self.assertFalse(evaluate.same(True, 1))

    def test_intervals(self):
        share, low, high = evaluate.wilson(50, 100)
        self.assertEqual(share, 0.5)
        self.assertAlmostEqual(low, 0.4038, 3)
        self.assertAlmostEqual(high, 0.5962, 3)


if __name__ == "__main__":
    unittest.main()
