"""`python -m lab.training STEP`: suite | related | data | render | train | mean | calibrate | export | tokens |
evaluate | adapter.

See README.md in this folder.
"""

import argparse
import json
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
TABLES = Path(__file__).resolve().parent / "tables"
SUITE = ROOT / "benches" / "suites" / "builtin.jsonl"
# Written without the tables, and answered after training alone.
BY_HAND = SUITE.with_name("by-hand.jsonl")
PROGRAM = ROOT / "target" / "release" / "callwright"
MODEL = ROOT / "models" / "callwright-tiny.gguf"
TOKEN_IDS = ROOT / "tests" / "cases" / "model" / "token-ids.jsonl"
# What tokenizers get wrong.
ODD = [
    "",
    " ",
    "  \n\n\t x",
    "a  b   c",
    "don't we'll I'M",
    "1,234.5e-6",
    "\r\n",
    "ﬁ ½ ² Ⅷ",
    "naïve 北京 👍🏽",
    "e\u0301 \u00a0 \u200b \ufeff",
    "<|end|><tool_call>\n### TOOL_CALL_START ### ###",
    '{"a": "\\"}}", "b": ["{"]}',
]
# Layers, width, heads of 32, feed forward. `large` is what fits into 16 MB at Q8_0, and wants an accelerator.
SIZES = {
    "toy": {"layers": 2, "width": 64, "heads": 2, "hidden": 128},
    "small": {"layers": 9, "width": 192, "heads": 6, "hidden": 1024},
    "large": {"layers": 9, "width": 352, "heads": 11, "hidden": 960},
}
SCENES, TOKENS = 76_000, 35e6


def say(*words):
    print(*words, file=sys.stderr, flush=True)


def barred():
    """The suites' tool names and questions: no training row may have one of them."""
    found = set()
    for line in SUITE.read_text().splitlines() + BY_HAND.read_text().splitlines():
        case = json.loads(line)
        found |= {tool["function"]["name"] for tool in case["tools"]}
        found |= {message["content"] for message in case["messages"] if message["role"] == "user"}
    return found


def step_suite(options):
    from . import scenes, suite, tables

    if options.of == "suite":
        tools = tables.load(TABLES / "suite.txt")
    elif options.suite == SUITE:
        raise SystemExit(f"{SUITE} is the benchmark: name another file with --suite")
    else:
        tools = dict(zip(("trained", "kept"), scenes.load(TABLES)))[options.of]
    cases = suite.make(tools, options.seed)
    options.suite.parent.mkdir(parents=True, exist_ok=True)
    options.suite.write_text("".join(json.dumps(case, ensure_ascii=False) + "\n" for case in cases))
    say(f"{len(cases)} cases in {options.suite}")


def step_related(options):
    from . import related, reword, scenes, wordnet

    tools, _ = scenes.load(TABLES)
    texts = [text for tool in tools for text in (*tool.names, *tool.descriptions)]
    texts += [text for tool in tools for _, phrase in tool.phrases for text in reword.texts(phrase)]
    found = wordnet.related(wordnet.WordNet(options.wordnet), texts)
    told = "".join(f"{word}\t{' '.join(others)}\n" for word, others in found.items())
    related.FILE.write_text(f"# {wordnet.NOTICE}\n{told}")
    say(f"{len(found)} words in {related.FILE}")


def step_data(options):
    from . import encode, scenes, tokenizer

    tools, kept = scenes.load(TABLES)
    out = options.out
    out.mkdir(parents=True, exist_ok=True)
    names = barred()
    if options.base and not options.vocabulary:
        from . import export

        _, learned = export.read(options.base)
        learned.save(str(out / "tokenizer.json"))
    else:
        # The easy scenes are poor in words: the tokenizer learns from the others.
        sample = scenes.scenes(tools, min(options.scenes, 8000), options.seed + 1000, names, easy=0)
        texts = (text for scene in sample for text in encode.texts(scene))
        learned = tokenizer.train(texts, out / "tokenizer.json", options.vocabulary or tokenizer.VOCABULARY)
    # Copying is learned first; a model that is gone on with can do it.
    easy = 0 if options.base else scenes.EASY
    encode.encode(scenes.scenes(kept, 160, options.seed + 2000, names, easy=0), learned, out / "dev")
    made = scenes.scenes(tools, options.scenes, options.seed, names, easy, tokenizer.letters(learned), options.mix)
    size, sequences, branches = encode.encode(made, learned, out / "data")
    say(f"{options.scenes} scenes, {branches} conversations, {size / 1e6:.1f} M tokens in {sequences} sequences")


def step_render(options):
    """Conversations on standard output, one a line: what the template is given, and the text that training reads."""
    from . import render, scenes

    tools, _ = scenes.load(TABLES)
    for scene in scenes.scenes(tools, options.scenes, options.seed, barred(), easy=options.scenes // 8):
        for _, messages in scene.branches:
            system = [{"role": "system", "content": scene.system}] if scene.system else []
            given = {"messages": system + messages, "tools": scene.tools, "tool_style": scene.style}
            text = render.render(given["messages"], scene.tools, scene.style)
            print(json.dumps({"vars": given, "text": text}, ensure_ascii=False))


def step_train(options):
    from . import export, model, tokenizer, train

    learned = tokenizer.load(options.out / "tokenizer.json")
    start = None
    if options.base:
        start, known = export.read(options.base)
        if known.get_vocab() != learned.get_vocab():
            start.cut_anew(tokenizer.pieces(learned, known))
        if options.layers:
            start.deepen(options.layers)
        if options.hidden:
            start.widen(options.hidden)
    log = open(options.out / "log.jsonl", "a")

    def tell(line):
        say(line)
        print(line, file=log, flush=True)

    train.train(
        options.out / "data",
        options.out / "dev",
        options.out,
        shape=model.Shape(vocabulary=learned.get_vocab_size(), **SIZES[options.size]),
        start=start,
        seed=options.seed,
        batch=options.batch,
        accumulate=options.accumulate,
        total=options.tokens,
        pairs=train.Pairs(learned),
        lr=options.lr,
        hints=options.hints,
        threads=options.threads,
        compile=options.compile,
        say=tell,
    )


def part(text):
    """`--parts`: a path and its weight."""
    path, _, weight = text.rpartition("=")
    return Path(path), float(weight)


def load(path):
    """The model and the tokenizer of a GGUF, or of a run's working folder."""
    from . import export, tokenizer, train

    if path.is_dir():
        return train.load(path / "last.pt"), tokenizer.load(path / "tokenizer.json")
    return export.read(path)


def write(options, net, learned):
    from . import export

    export.write(net, learned, options.model, options.date)
    say(f"{options.model}: {options.model.stat().st_size / 1e6:.2f} MB")


def step_mean(options):
    """Models that went on from one another lie so near that the mean of their weights is better than each."""
    from . import model

    if not options.parts:
        raise SystemExit("mean: name the models with --parts FILE=WEIGHT …")
    paths, weights = zip(*options.parts)
    nets, tokenizers = zip(*map(load, paths))
    if any(learned.get_vocab() != tokenizers[0].get_vocab() for learned in tokenizers):
        raise SystemExit("mean: the models have different tokenizers")
    write(options, model.mean(nets, weights), tokenizers[0])


def step_calibrate(options):
    from . import calibrate, train

    if not options.base:
        raise SystemExit("calibrate: name the model with --from GGUF")
    net, learned = load(options.base)
    fell, moved = calibrate.raise_threshold(net, learned, train.Data(options.out / "dev", "cpu"), options.by)
    say(f"a call's marker is less likely by {fell:.2f} where an answer begins; elsewhere it moved by {moved:.2f}")
    write(options, net, learned)


def step_export(options):
    write(options, *load(options.out))


def step_tokens(options):
    """Writes what tests/it/models/training.rs compares with llama.cpp's tokenisation."""
    import random

    from . import encode, export, scenes

    _, learned = export.read(options.model)
    rng = random.Random(options.seed)
    maker = scenes.Scenes(scenes.load(TABLES)[0], rng)
    texts = [text for _ in range(200) for text in encode.texts(maker.scene()) if len(text) < 170][:300] + ODD
    odd = maker.strange
    while len(texts) < 1000:
        texts.append(rng.choice((odd.sentence, odd.name, odd.script, odd.identifier))())
    lines = (json.dumps({"text": text, "ids": learned.encode(text).ids}, ensure_ascii=False) for text in texts)
    TOKEN_IDS.parent.mkdir(parents=True, exist_ok=True)
    TOKEN_IDS.write_text("".join(line + "\n" for line in lines))


def step_evaluate(options):
    from . import evaluate

    evaluate.run(
        options.program,
        options.model,
        options.suite,
        options.style,
        options.constrain,
        options.limit,
        options.answers,
        options.threads,
    )


def step_adapter(options):
    """Trains the LoRA adapter for SmolLM2-135M-Instruct."""
    import itertools

    import torch

    from . import adapter, scenes, smollm

    if not options.base or options.model == MODEL:
        raise SystemExit("adapter: name SmolLM2's GGUF with --from, and the file to write with --model")
    torch.manual_seed(options.seed)
    tools, kept = scenes.load(TABLES)
    prompts = adapter.Prompts(options.program, options.base)
    prompts.check(itertools.islice(adapter.scenes(tools, 3, options.seed + 4, barred()), 3))
    net, learned = smollm.read(options.base, adapter.RANK, adapter.ALPHA)
    made = adapter.scenes(tools, min(options.scenes, adapter.SCENES), options.seed, barred())
    data = list(adapter.encode(made, prompts, learned))[: adapter.SEQUENCES]
    dev = list(adapter.encode(adapter.scenes(kept, 24, options.seed + 1, barred()), prompts, learned))
    say(f"{len(data)} sequences, {sum(int(each[2].max()) for each in data)} conversations")
    keep = lambda: smollm.write(net, options.model, adapter.METADATA)
    adapter.train(net, learned, data, dev, keep, threads=options.threads, say=say)
    say(f"{options.model}: {options.model.stat().st_size / 1e6:.2f} MB")


STEPS = {
    "suite": step_suite,
    "related": step_related,
    "data": step_data,
    "render": step_render,
    "train": step_train,
    "mean": step_mean,
    "calibrate": step_calibrate,
    "export": step_export,
    "tokens": step_tokens,
    "evaluate": step_evaluate,
    "adapter": step_adapter,
}


def main():
    parser = argparse.ArgumentParser(prog="python -m lab.training", description=__doc__)
    parser.add_argument("step", choices=STEPS)
    parser.add_argument(
        "--out", type=Path, default=ROOT / "target" / "training", help="working folder (default: target/training)"
    )
    parser.add_argument("--model", type=Path, default=MODEL, help="the GGUF to write or to evaluate")
    parser.add_argument(
        "--from",
        dest="base",
        type=Path,
        metavar="GGUF",
        help="go on with this model and its tokenizer, with new scenes; or the one that `calibrate` changes",
    )
    parser.add_argument(
        "--parts",
        nargs="+",
        type=part,
        metavar="FILE=WEIGHT",
        help="the GGUFs, or working folders of runs, that `mean` makes --model of",
    )
    parser.add_argument(
        "--by",
        type=float,
        default=0.5,
        help="how much less likely, in logits, `calibrate` makes a call (default: 0.5)",
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--scenes", type=int, default=SCENES, help=f"scenes to generate (default: {SCENES})")
    parser.add_argument(
        "--mix",
        choices=("all", "decisions"),
        default="all",
        help="of `data`: questions of all kinds, or mostly whether a tool fits and which (default: all)",
    )
    parser.add_argument("--tokens", type=float, default=TOKENS, help=f"train on so many tokens (default: {TOKENS:.3g})")
    parser.add_argument(
        "--vocabulary",
        type=int,
        metavar="N",
        help="learn a tokenizer of N tokens, also with --from, which otherwise keeps the model's own",
    )
    parser.add_argument("--batch", type=int, default=8, help="sequences of 512 tokens in a batch (default: 8)")
    parser.add_argument(
        "--accumulate", type=int, default=1, metavar="N", help="batches whose mean gradient makes a step (default: 1)"
    )
    parser.add_argument("--lr", type=float, default=0.02, help="learning rate of the matrices (default: 0.02)")
    parser.add_argument(
        "--hints",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="tell inner layers what they are to find (default: yes)",
    )
    parser.add_argument("--size", choices=SIZES, default="small", help="of the network (default: small)")
    parser.add_argument("--layers", type=int, metavar="N", help="with --from: add layers until there are N")
    parser.add_argument("--hidden", type=int, metavar="N", help="with --from: widen the feed forward to N")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument(
        "--compile", action=argparse.BooleanOptionalAction, default=True, help="torch.compile: needs a C++ compiler"
    )
    parser.add_argument("--wordnet", type=Path, metavar="FOLDER", help="WordNet's database, for `related`")
    parser.add_argument("--date", help="general.date of the GGUF, YYYY-MM-DD")
    parser.add_argument("--limit", type=int, help="evaluate so many cases of each category")
    parser.add_argument("--program", type=Path, default=PROGRAM, help="callwright, which answers the suite")
    parser.add_argument(
        "--suite", type=Path, default=SUITE, help="the cases to write or to evaluate (default: builtin.jsonl)"
    )
    parser.add_argument(
        "--of",
        choices=("suite", "kept", "trained"),
        default="suite",
        help="the domains of `suite`: the benchmark's, those that training watches, or those that it trains on",
    )
    parser.add_argument("--style", choices=("delimited", "hermes"), default="delimited")
    parser.add_argument(
        "--constrain",
        choices=("off", "auto", "strict"),
        default="off",
        help="how callwright holds calls to their schemas",
    )
    parser.add_argument("--answers", type=Path, help="write every answer to this file")
    options = parser.parse_args()
    STEPS[options.step](options)


if __name__ == "__main__":
    main()
