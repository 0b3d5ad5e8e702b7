"""`python -m unittest lab.training.test_model`: tokenizer, packing and export; skipped where torch is not installed."""

import copy
import tempfile
import unittest
from pathlib import Path

from . import __main__ as main
from . import scenes
from .render import ASSISTANT, CONTROL, MARKERS, render

MISSING = None
try:
    import gguf
    import numpy as np
    import torch
    from tokenizers.pre_tokenizers import ByteLevel

    from . import adapter, calibrate, encode, export, model, smollm, tokenizer, train
except ImportError as error:
    MISSING = error.name

TOOLS, _ = scenes.load(main.TABLES)


def setUpModule():
    if MISSING:
        raise unittest.SkipTest(f"{MISSING} is not installed (lab/training/requirements.txt)")


class Untrained(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.path = Path(cls.folder.name)
        made = list(scenes.scenes(TOOLS, 1500, 1, easy=100))
        cls.texts = [text for scene in made for text in encode.texts(scene)]
        cls.scenes = made
        cls.tokenizer = tokenizer.train(cls.texts, cls.path / "tokenizer.json", 2048)
        torch.manual_seed(0)
        cls.net = model.Model(model.Shape(2048, width=64, layers=2, heads=2, hidden=64))
        for block in cls.net.blk:
            # Away from the identity that training starts with, so that attention matters.
            torch.nn.init.normal_(block.attn_output.weight, std=0.1)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_it_comes_back_from_its_file(self):
        for name in ("a.gguf", "b.gguf"):
            export.write(self.net, self.tokenizer, self.path / name, "2026-01-01")
        self.assertEqual((self.path / "a.gguf").read_bytes(), (self.path / "b.gguf").read_bytes())
        _, back = export.read(self.path / "a.gguf")
        for text in self.texts[:1000]:
            ids = self.tokenizer.encode(text).ids
            self.assertEqual(ids, back.encode(text).ids)
            self.assertEqual(self.tokenizer.decode(ids, skip_special_tokens=False), text)

    def test_a_run_goes_on_with_a_model(self):
        # A folder of its own: a run resumes from a last.pt that lies in it.
        out = self.path / "run"
        encode.encode(self.scenes[:40], self.tokenizer, out / "data")
        start = copy.deepcopy(self.net)
        trained = train.train(
            out / "data", out / "data", out, start=start, batch=2, total=1500, lr=1e-9, say=lambda line: None
        )
        # Steps so small leave what was given nearly as it was.
        self.assertTrue(torch.allclose(self.net.token_embd.weight, trained.token_embd.weight, atol=1e-4))
        self.assertTrue((out / "last.pt").exists())

    def test_weights_change_after_so_many_batches(self):
        for accumulate, changed in ((1, True), (100, False)):
            out = self.path / f"accumulate-{accumulate}"
            encode.encode(self.scenes[:40], self.tokenizer, out / "data")
            start = copy.deepcopy(self.net)
            given = dict(start=start, batch=2, accumulate=accumulate, total=3000, lr=0.01, say=lambda line: None)
            trained = train.train(out / "data", out / "data", out, **given)
            same = torch.equal(self.net.blk[0].ffn_up.weight, trained.blk[0].ffn_up.weight)
            self.assertEqual(same, not changed)

    def test_hints_can_be_left_out(self):
        told = {}
        for hints in (True, False):
            out = self.path / f"hints-{hints}"
            encode.encode(self.scenes[:40], self.tokenizer, out / "data")
            lines = []
            given = dict(start=copy.deepcopy(self.net), batch=2, total=25_000, hints=hints, say=lines.append)
            train.train(out / "data", out / "data", out, **given)
            told[hints] = next(line for line in lines if line.startswith("{"))
        self.assertIn('"copied"', told[True])
        self.assertNotIn('"copied"', told[False])

    def test_a_mean_lies_between_its_models(self):
        other = copy.deepcopy(self.net)
        torch.nn.init.normal_(other.token_embd.weight)
        mean = model.mean([self.net, other], [3, 1])
        wanted = 0.75 * self.net.token_embd.weight + 0.25 * other.token_embd.weight
        self.assertTrue(torch.allclose(mean.token_embd.weight, wanted))
        self.assertTrue(torch.equal(mean.blk[0].ffn_up.weight, self.net.blk[0].ffn_up.weight))
        with self.assertRaisesRegex(ValueError, "shapes"):
            model.mean([self.net, model.Model(model.Shape(2048, width=64, layers=1, heads=2, hidden=64))], [1, 1])

    def test_a_threshold_lowers_the_markers_where_an_answer_begins(self):
        encode.encode(self.scenes[200:300], self.tokenizer, self.path / "threshold")
        data = train.Data(self.path / "threshold", "cpu")
        made = data.batch(np.arange(8))
        net = copy.deepcopy(self.net)
        with torch.no_grad():
            states = net.hidden(made.ids, made.places, made.mask)
            before = net.logits(states)
            calibrate.raise_threshold(net, self.tokenizer, data, 0.5)
            # The states are the same ones: only the rows that make logits of them are looked at.
            moved = (net.logits(states) - before)[:, :-1]
        said = made.says == encode.SPOKEN
        first = said & (made.ids[:, :-1] == self.tokenizer.token_to_id(ASSISTANT))
        markers = [self.tokenizer.token_to_id(MARKERS[0]), self.tokenizer.token_to_id(MARKERS[2])]
        self.assertTrue(torch.allclose(moved[first][:, markers].mean(0), torch.tensor(-0.5), atol=0.1))
        self.assertLess(float(moved[said & ~first][:, markers].abs().mean()), 0.2)
        moved[..., markers] = 0
        self.assertEqual(float(moved.abs().max()), 0)

    def test_a_model_knows_its_tokens_in_another_vocabulary(self):
        larger = tokenizer.train(self.texts, self.path / "larger.json", 2500)
        old, new = self.tokenizer.get_vocab(), larger.get_vocab()
        pieces = tokenizer.pieces(larger, self.tokenizer)
        words = {place: word for word, place in old.items()}
        self.assertEqual(len(pieces), 2500)
        for word, place in new.items():
            self.assertEqual("".join(words[piece] for piece in pieces[place]), word)
        net = copy.deepcopy(self.net)
        net.cut_anew(pieces)
        for word in new.keys() & old.keys():
            before, after = self.net.token_embd.weight[old[word]], net.token_embd.weight[new[word]]
            self.assertTrue(torch.allclose(before, after, atol=1e-6), word)
        self.assertEqual(net.shape.vocabulary, 2500)
        self.assertEqual(net.logits(net.hidden(torch.tensor([[2499, 0]]))).shape, (1, 2, 2500))

    def test_a_model_says_the_same_with_more_layers(self):
        for layers in (2, 3, 4):
            net = copy.deepcopy(self.net)
            net.deepen(layers)
            self.assertEqual((len(net.blk), net.shape.layers), (layers, layers))
            ids = torch.tensor([[5, 300, 7, 2000]])
            self.assertTrue(torch.equal(self.net.hidden(ids), net.hidden(ids)))
            # What was added can learn: its last matrices are given a gradient.
            net.hidden(ids).square().mean().backward()
            self.assertTrue(all(block.ffn_down.weight.grad.any() for block in net.blk))
        for layers in (1, 5):
            self.assertRaises(ValueError, model.Model(self.net.shape).deepen, layers)

    def test_a_model_says_the_same_with_a_wider_feed_forward(self):
        net = copy.deepcopy(self.net)
        for block in net.blk:
            torch.nn.init.normal_(block.ffn_down.weight, std=0.1)
        ids = torch.tensor([[5, 300, 7, 2000]])
        before = net.hidden(ids)
        net.widen(96)
        self.assertEqual((net.blk[0].ffn_gate.weight.shape, net.shape.hidden), ((96, 64), 96))
        self.assertTrue(torch.allclose(before, net.hidden(ids), atol=1e-5))
        net.hidden(ids).square().mean().backward()
        self.assertTrue(all(block.ffn_down.weight.grad[:, 64:].any() for block in net.blk))
        self.assertRaises(ValueError, net.widen, 95)

    def test_no_token_goes_on_beyond_a_capital(self):
        for word in self.tokenizer.get_vocab():
            if word not in MARKERS:
                self.assertNotRegex(word, "[a-z][A-Z]")

    def test_a_packed_branch_sees_what_its_conversation_alone_would(self):
        encode.encode(self.scenes[:40], self.tokenizer, self.path / "data")
        data = train.Data(self.path / "data", "cpu")
        made = data.batch([0, 1])
        ids = made.ids
        packed = self.net.hidden(ids, made.places, made.mask)
        stored = {name: torch.from_numpy(array[[0, 1]].astype("int64")) for name, array in data.arrays.items()}
        checked = 0
        for scene, branch in ((1, 1), (1, 3), (2, 2)):
            for row in (0, 1):
                prefix = (stored["scene"][row] == scene) & (stored["branch"][row] == 0)
                own = (stored["scene"][row] == scene) & (stored["branch"][row] == branch)
                if own.any():
                    alone = self.net.hidden(ids[row][prefix | own][None])[0]
                    self.assertTrue(torch.allclose(alone, packed[row][prefix | own], atol=1e-4))
                    checked += 1
        self.assertGreater(checked, 2)

    def test_hints_are_about_the_tokens_of_their_own_conversation(self):
        encode.encode(self.scenes[:40], self.tokenizer, self.path / "hints")
        data = train.Data(self.path / "hints", "cpu")
        ids, scene, branch, source = (data.arrays[name].astype(int) for name in ("ids", "scene", "branch", "source"))
        found = 0
        for row, place in zip(*source.nonzero()):
            at = source[row, place]
            self.assertEqual(ids[row, at], ids[row, place + 1])
            self.assertLess(at, place + 1)
            self.assertEqual(scene[row, at], scene[row, place])
            self.assertIn(branch[row, at], (0, branch[row, place]))
            found += 1
        self.assertGreater(found, 500)
        made, looked = data.batch([0, 1]), 0
        for row, place, at in made.found.nonzero().tolist():
            word, same = (self.tokenizer.decode([made.ids[row, token]]).lower() for token in (place, at))
            looked += word == same
            self.assertEqual(scene[row, at], scene[row, place])
            self.assertIn(branch[row, at], (0, branch[row, place]))
        self.assertGreater(looked, 5)

    def test_before_a_value_those_of_the_same_answer_are_told(self):
        parameters = {"type": "object", "properties": {"who": {"type": "string"}, "room": {"type": "string"}}}
        tool = {"type": "function", "function": {"name": "book", "parameters": parameters}}
        calls = [("book", {"who": "7b", "room": "4x"}), ("book", {"who": "9", "room": "5"})]
        again = [("book", {"who": "8", "room": "4x"})]
        messages = [scenes.user("4x for 7b, 5 for 9"), scenes.spoken(calls)]
        messages += [scenes.user("4x for 8"), scenes.spoken(again)]
        scene = scenes.Scene("", [tool], "delimited", [("parallel", messages)])
        encode.encode([scene], self.tokenizer, self.path / "said")
        made = train.Data(self.path / "said", "cpu").batch([0])
        told = {}
        for row, at in made.said[0].nonzero().tolist():
            told.setdefault(row, []).append(self.tokenizer.decode([made.ids[0, at]]))
        following = [self.tokenizer.decode([made.ids[0, row + 1]]) for row in told]
        self.assertEqual(following, ["4", "9", "5", "4"])
        self.assertEqual(list(told.values()), [["7"], ["7", "4"], ["7", "4", "9"], ["8"]])

    def test_related_words_are_found_in_the_tools_and_by_themselves(self):
        encode.encode(self.scenes[:40], self.tokenizer, self.path / "hints")
        data = train.Data(self.path / "hints", "cpu")
        scene, branch, told = (data.arrays[name] for name in ("scene", "branch", "told"))
        made = data.batch(list(range(8)))
        known, words = train.related_pairs(), data.arrays["words"].astype(int)
        found = made.near.nonzero().tolist()
        self.assertGreater(len(found), 5)
        for row, place, at in found:
            self.assertIn(words[row, place] * 65536 + words[row, at], known)
            self.assertEqual(scene[row, place], scene[row, at])
            self.assertEqual((told[row, place], branch[row, at]), (encode.ASKED, 0))
        torch.manual_seed(1)
        net, pairs = model.Model(self.net.shape), train.Pairs(self.tokenizer)
        optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
        shares = []
        for _ in range(30):
            # The same pairs again and again.
            cast = torch.autocast("cpu", enabled=False)
            loss, share = pairs.loss(net, np.random.default_rng(5), torch.device("cpu"), cast)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            shares.append(share)
        self.assertLess(shares[0], 0.05)
        self.assertGreater(shares[-1], 0.3)

    def test_layers_learn_what_hints_tell(self):
        encode.encode(self.scenes[:40], self.tokenizer, self.path / "hints")
        made = train.Data(self.path / "hints", "cpu").batch([0, 1, 2, 3, 4, 5])
        torch.manual_seed(1)
        net = model.Model(self.net.shape)
        hinted = train.Hinted(net.shape)
        optimizer = torch.optim.AdamW([*net.parameters(), *hinted.parameters()], lr=0.01)
        losses = []
        for _ in range(12):
            loss, shares = hinted(made, net.traced(made.ids, made.places, made.mask)[1])
            self.assertEqual(
                set(shares), {"found", "near", "linked", "labelled", "copied", "said", "told", "decided", "valued"}
            )
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(float(loss.detach()))
        self.assertLess(losses[-1], 0.7 * losses[0])

    def test_a_scene_is_packed_as_its_conversations_are_rendered(self):
        scene = next(scene for scene in self.scenes if scene.system and scene.branches)
        prefix, *branches = encode.texts(scene)
        for text, (_, messages) in zip(branches, scene.branches):
            system = [{"role": "system", "content": scene.system}]
            self.assertEqual(prefix + text, render(system + messages, scene.tools, scene.style))

    def test_a_choice_ends_with_the_name(self):
        encode.encode(self.scenes[200:400], self.tokenizer, self.path / "choices")
        arrays = train.Data(self.path / "choices", "cpu").arrays
        chosen = arrays["kind"] == encode.CATEGORIES.index("choice")
        texts = []
        for ids, kept, scene, branch in zip(arrays["ids"], chosen, arrays["scene"], arrays["branch"]):
            for number, place in set(zip(scene[kept], branch[kept])):
                own = ids[(scene == number) & (branch == place)]
                texts.append(self.tokenizer.decode(own.tolist(), skip_special_tokens=False))
        self.assertGreater(len(texts), 10)
        for text in texts:
            self.assertRegex(text, r'(?s)^<\|user\|>.+<\|end\|><\|assistant\|>[^\n]+\n{"name": "[^"]+", "$')


class Adapter(unittest.TestCase):
    """On a network of SmolLM2's kind with random weights."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.path = Path(cls.folder.name)
        torch.manual_seed(0)
        rng = np.random.default_rng(0)
        writer = gguf.GGUFWriter(str(cls.path / "toy.gguf"), "llama")
        writer.add_block_count(2)
        writer.add_context_length(512)
        writer.add_embedding_length(64)
        writer.add_feed_forward_length(96)
        writer.add_head_count(4)
        writer.add_head_count_kv(2)
        writer.add_rope_freq_base(10000.0)
        writer.add_layer_norm_rms_eps(1e-5)
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("smollm")
        letters = sorted(ByteLevel.alphabet())
        writer.add_token_list([*letters, "ab", "<|im_end|>"])
        writer.add_token_types([gguf.TokenType.NORMAL] * (len(letters) + 1) + [gguf.TokenType.CONTROL])
        writer.add_token_merges(["a b"])
        shapes = {"attn_q": (64, 64), "attn_k": (32, 64), "attn_v": (32, 64), "attn_output": (64, 64)}
        shapes |= {
            "ffn_gate": (96, 64),
            "ffn_up": (96, 64),
            "ffn_down": (64, 96),
            "attn_norm": (64,),
            "ffn_norm": (64,),
        }
        named = {f"blk.{layer}.{name}.weight": shape for layer in range(2) for name, shape in shapes.items()}
        named |= {"token_embd.weight": (len(letters) + 2, 64), "output_norm.weight": (64,)}
        for name, shape in named.items():
            values = rng.standard_normal(shape, np.float32) * 0.2
            writer.add_tensor(name, values + (len(shape) == 1))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        cls.net, cls.tokenizer = smollm.read(cls.path / "toy.gguf", 4, 8.0)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def packed(self, *branches):
        """A scene with the prefix "ab1" and these branches, all of whose tokens are wanted."""
        prefix = self.tokenizer.encode("ab1").ids
        tokens = [(id, 1, 0, place, adapter.NOTHING) for place, id in enumerate(prefix)]
        for branch, text in enumerate(branches, 1):
            ids = self.tokenizer.encode(text).ids
            tokens += [(id, 1, branch, len(prefix) + at, adapter.WRITTEN) for at, id in enumerate(ids)]
        return np.array(tokens + [(0,) * 5] * (adapter.LENGTH - len(tokens)), np.int32).T

    def last(self, *branches):
        """The state after the last token."""
        ids, places, mask, wanted, size = adapter.batch([self.packed(*branches)])
        with torch.no_grad():
            return self.net(ids, places, mask)[0, size - 1]

    def test_digits_are_tokens_and_merges_hold(self):
        self.assertEqual(self.tokenizer.encode("ab12<|im_end|>").tokens, ["ab", "1", "2", "<|im_end|>"])

    def test_a_conversation_sees_its_own_scene_alone(self):
        torch.testing.assert_close(self.last("cd", "efg"), self.last("efg"), atol=1e-5, rtol=1e-4)

    def test_the_adapter_changes_nothing_at_first_and_is_written_whole(self):
        before = self.last("cd")
        with torch.no_grad():
            for name, parameter in self.net.named_parameters():
                if name.endswith("lora_a"):
                    parameter.normal_(std=0.1)
        torch.testing.assert_close(self.last("cd"), before, atol=0, rtol=0)
        with torch.no_grad():
            for name, parameter in self.net.named_parameters():
                if name.endswith("lora_b"):
                    parameter.normal_(std=0.1)
        self.assertGreater(float((self.last("cd") - before).abs().max()), 1e-3)
        smollm.write(self.net, self.path / "adapter.gguf", {"general.license": "apache-2.0"})
        tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(str(self.path / "adapter.gguf")).tensors}
        self.assertEqual(len(tensors), 2 * 7 * 2)
        for name, values in self.net.state_dict().items():
            if ".lora_" in name:
                matrix, _, part = name.rpartition(".")
                written = torch.from_numpy(np.array(tensors[f"{matrix}.weight.{part}"].data, np.float32))
                torch.testing.assert_close(written, values.float(), atol=1e-3, rtol=1e-3)

    def test_a_call_where_none_fits_costs_its_probability(self):
        made = self.packed("cd")
        start = self.tokenizer.encode("c").ids[0]
        losses = {}
        for what in (adapter.WRITTEN, adapter.NO_CALL):
            # The first token of the branch alone.
            made[4] = 0
            made[4, len(self.tokenizer.encode("ab1").ids)] = what
            losses[what] = float(adapter.loss_of(self.net, adapter.batch([made]), start)[0].detach())
        likely = np.exp(-losses[adapter.WRITTEN])
        self.assertAlmostEqual(losses[adapter.NO_CALL], -np.log(1 - likely), places=4)


class Shipped(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        _, cls.tokenizer = export.read(main.MODEL)

    def test_a_value_is_cut_alike_in_question_and_json(self):
        for value in ("Beijing", "Qarvelton", "2024", "report", "(a)", "C:\\x", "#7*", "北京"):
            alone = self.tokenizer.encode(value).tokens
            for text in (f"in {value}?", f'"{value}"'):
                tokens = self.tokenizer.encode(text).tokens
                self.assertTrue(any(tokens[at : at + len(alone)] == alone for at in range(len(tokens))), text)
        self.assertEqual(self.tokenizer.encode("2024").tokens, list("2024"))

    def test_markers_and_roles_are_one_token_each(self):
        for text in CONTROL + MARKERS:
            self.assertEqual(len(self.tokenizer.encode(text).ids), 1)


if __name__ == "__main__":
    unittest.main()
