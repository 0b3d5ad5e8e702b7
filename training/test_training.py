"""`python -m unittest training.test_training`: the parts of the pipeline, without training.

`LLAMA_SERVER`, the address of a llama.cpp server that has the bundled model loaded, adds a comparison with llama.cpp.
"""

import json
import os
import random
import subprocess
import sys
import tempfile
import unittest
import urllib.request
from pathlib import Path

import torch

from . import __main__ as main
from . import encode, evaluate, export, generate, model, suite, tables, tokenizer
from .render import CONTROL, MARKERS, render

TOOLS = tables.load(main.TABLES / "domains.txt")
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


def conversation():
    call = {"type": "function", "function": {"name": "get_weather", "arguments": {"city": "São Paulo"}}}
    return [
        {"role": "user", "content": "Weather in São Paulo?"},
        {"role": "assistant", "content": "I'll look.", "tool_calls": [call, call]},
        {"role": "tool", "content": '{"sky": "clear"}'},
        {"role": "assistant", "content": "It is clear."},
    ]


class Template(unittest.TestCase):
    def test_a_later_prompt_starts_with_the_earlier_one(self):
        for style in ("delimited", "hermes"):
            whole = render(conversation(), [WEATHER], style)
            for turn in (1, 3):
                self.assertTrue(
                    whole.startswith(render(conversation()[:turn], [WEATHER], style, add_generation_prompt=True))
                )

    def test_calls_are_written_in_both_styles(self):
        call = '{"name": "get_weather", "arguments": {"city": "São Paulo"}}'
        delimited = f"### TOOL_CALL_START ###\n{call}\n### TOOL_CALL_END ###"
        self.assertIn(f"<|assistant|>I'll look.\n{delimited}\n{delimited}<|end|>", render(conversation(), [WEATHER]))
        self.assertIn(f"<tool_call>\n{call}\n</tool_call><|end|>", render(conversation(), [WEATHER], "hermes"))

    def test_arguments_that_are_text_stay_as_they_are(self):
        messages = [
            {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f", "arguments": '{"a":1}'}}]}
        ]
        self.assertIn('"arguments": {"a":1}}', render(messages))

    def test_no_system_turn_without_system_text_and_tools(self):
        self.assertEqual(
            render([{"role": "user", "content": "Hi"}], add_generation_prompt=True), "<|user|>Hi<|end|><|assistant|>"
        )


class Data(unittest.TestCase):
    def test_rows_repeat_from_the_seed(self):
        # In processes of their own: the order of a set is fixed within one.
        program = "from training import test_training as t; print(''.join(map(t.encode.text, t.generate.rows(t.TOOLS, 300, 5))))"
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
        # Past the curriculum's first rows, so that every kind comes up.
        sampler = generate.Conversations(TOOLS, random.Random(3))
        for _ in range(3000):
            row = sampler.row(generate.CURRICULUM[-1])
            offered = {tool["function"]["name"]: tool["function"]["parameters"] for tool in row.tools}
            self.assertEqual(len(offered), len(row.tools))
            for message in row.messages:
                for call in message.get("tool_calls", []):
                    self.check(call["function"]["arguments"], offered[call["function"]["name"]])

    def check(self, arguments, schema):
        self.assertLessEqual(set(schema.get("required", [])), set(arguments))
        for name, value in arguments.items():
            inner = schema["properties"][name]
            kinds = {
                "string": str,
                "integer": int,
                "number": (int, float),
                "boolean": bool,
                "array": list,
                "object": dict,
            }
            self.assertIsInstance(value, kinds[inner["type"]])
            if "enum" in inner:
                self.assertIn(value, inner["enum"])
            if inner["type"] == "object":
                self.check(value, inner)

    def test_the_suite_is_what_the_table_makes(self):
        made = "".join(json.dumps(case, ensure_ascii=False) + "\n" for case in suite.make(main.TABLES, 1))
        self.assertEqual(main.SUITE.read_text(), made)

    def test_no_row_shares_a_tool_name_or_a_question_with_the_suite(self):
        barred = main.barred()
        for row in generate.rows(TOOLS, 3000, 2, barred):
            self.assertFalse(barred & {tool["function"]["name"] for tool in row.tools})
            self.assertFalse(barred & set(generate.questions(row)))

    def test_a_barred_name_is_refused(self):
        rows = list(generate.rows(TOOLS, 400, 1))
        name = rows[-1].tools[0]["function"]["name"]
        again = list(generate.rows(TOOLS, 400, 1, {name}))
        self.assertTrue(any(tool["function"]["name"] == name for row in rows for tool in row.tools))
        self.assertFalse(any(tool["function"]["name"] == name for row in again for tool in row.tools))


class Tokens(unittest.TestCase):
    def test_an_untrained_model_comes_back_from_its_file(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = Path(folder)
            texts = [encode.text(row) for row in generate.rows(TOOLS, 6000, 1)]
            learned = tokenizer.train(texts, folder / "tokenizer.json")
            shape = model.Shape(width=64, layers=1, heads=2, hidden=64)
            net = model.Model(shape)
            torch.save({"shape": vars(shape), "model": net.state_dict()}, folder / "last.pt")
            export.write(folder / "last.pt", folder / "tokenizer.json", folder / "a.gguf", "2026-01-01")
            export.write(folder / "last.pt", folder / "tokenizer.json", folder / "b.gguf", "2026-01-01")
            self.assertEqual((folder / "a.gguf").read_bytes(), (folder / "b.gguf").read_bytes())
            _, back = export.read(folder / "a.gguf")
            for text in texts[:1000]:
                self.assertEqual(learned.encode(text).ids, back.encode(text).ids)
                self.assertEqual(learned.decode(learned.encode(text).ids, skip_special_tokens=False), text)

    def test_a_value_is_cut_alike_in_question_and_json(self):
        _, shipped = export.read(main.MODEL)
        for value in ("Beijing", "Qarvelton", "2024", "report"):
            alone = shipped.encode(value).tokens
            for text in (f"in {value}?", f'"{value}"'):
                tokens = shipped.encode(text).tokens
                self.assertTrue(any(tokens[at : at + len(alone)] == alone for at in range(len(tokens))), text)
        self.assertEqual(shipped.encode("2024").tokens, list("2024"))

    def test_markers_and_roles_are_one_token_each(self):
        _, shipped = export.read(main.MODEL)
        for text in CONTROL + MARKERS:
            self.assertEqual(len(shipped.encode(text).ids), 1)

    @unittest.skipUnless("LLAMA_SERVER" in os.environ, "LLAMA_SERVER is not set")
    def test_ids_are_those_of_llama_cpp(self):
        _, shipped = export.read(main.MODEL)
        texts = [encode.text(row) for row in generate.rows(TOOLS, 900, 9)]
        texts += main.SUITE.read_text().splitlines()[::4]
        texts += [
            "",
            " ",
            "  \n\n\t x",
            "naïve 北京 👍🏽",
            "a  b   c",
            "don't we'll I'M",
            "1,234.5e-6",
            "\r\n",
            "ﬁ ½ ²",
        ]
        for text in texts:
            body = json.dumps({"content": text, "parse_special": True, "add_special": False}).encode()
            request = urllib.request.Request(
                os.environ["LLAMA_SERVER"] + "/tokenize", body, {"Content-Type": "application/json"}
            )
            with urllib.request.urlopen(request, timeout=60) as reply:
                self.assertEqual(json.load(reply)["tokens"], shipped.encode(text).ids, text)


class Judging(unittest.TestCase):
    def test_answers_are_classed(self):
        good = '### TOOL_CALL_START ###\n{"name": "f", "arguments": {"n": 2}}\n### TOOL_CALL_END ###'
        expected = [{"name": "f", "arguments": {"n": 2.0}}]
        self.assertTrue(evaluate.judge(good, True, expected, "delimited")["exact"])
        self.assertFalse(evaluate.judge(good, False, expected, "delimited")["formed"])
        self.assertFalse(evaluate.judge(good[:-5], True, expected, "delimited")["formed"])
        self.assertFalse(evaluate.judge(good + " and more", True, expected, "delimited")["formed"])
        self.assertFalse(evaluate.judge(good, True, [], "delimited")["exact"])
        self.assertTrue(evaluate.judge("None of the tools can.", True, [], "delimited")["exact"])
        self.assertFalse(evaluate.same(True, 1))

    def test_intervals(self):
        share, low, high = evaluate.wilson(50, 100)
        self.assertEqual(share, 0.5)
        self.assertAlmostEqual(low, 0.4038, 3)
        self.assertAlmostEqual(high, 0.5962, 3)


if __name__ == "__main__":
    unittest.main()
