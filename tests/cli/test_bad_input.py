"""Bad input of every command is exit code 2 and one line that says what is wrong or what to do, before any work."""

import json
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from alpa_explore import cli
from tests.plans.example import example_plan
from tests.runtime.plans import small_plan

RUNS = Path(__file__).parents[1] / "validation" / "data" / "nanotron_playbook_h100.csv"
CASES = f"""
plan gpt-1.3 --cluster 1x4:v100                                     | 'gpt-1.3b'
plan gpt-tiny --cluster 1x0:v100                                    | at least one device
plan gpt-tiny --cluster 1x4:v10                                     | 'v100'
plan gpt-tiny --cluster four                                        | For example '2x8:a100'
plan gpt-tiny --cluster 1x4:v100 -B 0                               | B = 0
plan gpt-tiny --cluster 1x4:v100 -B 7                               | does not divide its global batch
plan gpt-tiny --cluster 1x4:v100 -B x                               | neither a number nor 'auto': 'x'
plan mlp-tiny --cluster 1x2:v100 -B 3 --global-batch 8              | 2 or 4
plan gpt-tiny                                                       | --cluster
plan gpt-tiny --cluster 1x4:v100 --clutser 2                        | (did you mean --cluster?). See `alpa-explore plan
plan gpt-tiny --cluster 1x4:v100 -o .                               | is a folder
plan gpt-tiny --cluster 1x4:v100 -o missing/a                       | there is no folder
plan gpt-tiny --cluster 1x4:v100 --no-remat --remat auto            | not allowed with argument
plan gpt-tiny --cluster 1x4:v100 --remat all --no-remat             | not allowed with argument
plan gpt-tiny --cluster 1x4:v100 --baseline megatrn                 | 'megatron'
plan gpt-tiny --cluster 1x4:v100 --baseline megatron tp             | written NAME=N
plan gpt-tiny --cluster 1x4:v100 --baseline zero-3 tp=2             | does not take tp
plan gpt-tiny --cluster 1x4:v100 --baseline megatron exchange=ring  | without cp
plan gpt-tiny --cluster 1x4:v100 --baseline megatron --schedule zb-v | a pipeline option
plan --cluster 1x2:cpu                                              | one model: neither MODEL nor --hf
plan gpt-tiny --hf a.json --cluster 1x2:cpu                         | one model: MODEL and --hf
plan --hf llama --cluster 1x2:cpu                                   | A config is a .json file: 'llama'
plan --hf missing.json --cluster 1x2:cpu                            | The config file cannot be read: missing.json
plan vit-tiny --sequence 16 --cluster 1x2:cpu                       | vit-tiny has no sequence of tokens
plan gpt-tiny --sequence 0 --cluster 1x2:cpu                        | must be a number of tokens: 0
plan gpt-tinny@16 --cluster 1x2:cpu                                 | Did you mean 'gpt-tiny'
coverage --hf code.json                                             | never run
coverage gpt-tinny                                                  | 'gpt-tiny'
coverage                                                            | MODEL
plna                                                                | invalid choice: 'plna'
                                                                    | COMMAND
show nothing.plan.json                                              | There is no plan file
show .                                                              | is a folder
show a.plan.json --stage 4                                          | 0 to 3
lab nothing.ipynb                                                   | no such notebook
lab --port 99999                                                    | 0 to 65535
baselines gpt-tiny --cluster 1x2:v100 --kind dpp                    | Did you mean
baselines gpt-tiny --cluster 1x2:v100 --pp 0                        | pp must be 1 or more
baselines gpt-tiny --cluster 1x2:v100 -B 7                          | does not divide
baselines gpt-tiny --cluster 1x0:v100                               | at least one device
baselines gpt-tiny --cluster 1x2:z80                                | device
layouts llama-tiny --cluster 1x2:h100 --global-batch 4 --top 0      | --top
layouts llama-tiny --cluster 1x2:h100 --global-batch 0              | global batch
layouts mlp-tiny --cluster 1x2:h100 --precision bf16                | this model has none
layouts wide-resnet-tiny --cluster 1x2:h100                         | weights of 16 bits
layouts llama-tiny --cluster 1x2:h1000                              | h100
layouts llama-tiny --cluster 1x2:h100 -B 8                          | each layout has its own number of microbatches
layouts llama-tiny --cluster 1x2:h100 -B auto                       | --global-batch
scale llama-tiny --devices h100 --nodes 1 --price h100=cheap        | --price h100=2.5
scale llama-tiny --devices h100 --nodes 1 --price h100              | without =
scale llama-tiny --devices h100 --nodes 1 --price b200=2            | not asked for
scale llama-tiny --devices h100 --nodes 1,two                       | --nodes 1,2,4
scale llama-tiny --devices ''                                       | h100, b200
scale llama-tiny --devices h100 -B 8                                | --global-batch
scale llama-tiny --devices h100 -B auto                             | each layout has its own number of microbatches
simulate a.plan.json --schedule 1b1f                                | Did you mean '1f1b'
simulate a.plan.json --schedule missing.csv                         | cannot be read
simulate a.plan.json --schedule interleaved-1f1b --stages-per-submesh 3 | Choose 2 stages a submesh
simulate a.plan.json --stages-per-submesh 2                         | runs one stage
simulate a.plan.json --schedule all --trace a.json                  | Name one schedule
simulate a.plan.json --trace no/such/folder/a.json                  | The trace
simulate a.plan.json --schedule deadlock.csv                        | submesh 0 waits at 0B0 for 0F0
program small.plan.json --rank 9                                    | Give one of 0 to 1
program small.plan.json --schedule 2f2b                             | Did you mean
program small.plan.json --bogus                                     | --bogus
compare-solvers gpt-1.4b --mesh 4x2                                 | gpt-1.3b
compare-solvers mlp-tiny --mesh 4by2                                | For example 16x8
compare-solvers mlp-tiny --mesh 0x2                                 | For example 16x8
compare-solvers mlp-tiny --mesh 99999999999                         | For example 16x8
compare-solvers mlp-tiny --mesh 1x1                                 | too small
compare-solvers mlp-tiny --mesh 64x64                               | too large
compare-solvers mlp-tiny --mesh 2x2x2x2                             | too large
compare-solvers mlp-tiny --mesh 3x3                                 | does not fill its nodes
compare-solvers mlp-tiny --mesh 4x2 --device v101                   | v100
compare-solvers mlp-tiny --mesh 4x2 --solvers factor,autoo          | Did you mean 'auto'
compare-solvers mlp-tiny --mesh 4x2 --solvers ,                     | Unknown solver
compare-solvers mlp-tiny --mesh 4x2 --layers 2-1                    | FIRST-LAST
compare-solvers mlp-tiny --mesh 4x2 --layers one                    | FIRST-LAST
compare-solvers mlp-tiny --mesh 4x2 --layers 1-9                    | layers from 0 to 2
compare-solvers mlp-tiny --mesh 4x2 --time-limit 0                  | must be positive
compare-solvers mlp-tiny --mesh 4x2 -B 7                            | does not divide
compare-solvers mlp-tiny --mesh 4x2 --html /no/such/folder/a.html   | no folder
compare-solvers mlp-tiny --mesh 4x2 --num-layers 99                 | layers
export a.plan.json --to megatorn                                    | 'megatorn'
export a.plan.json --to nemo -o missing/a.py                        | there is no folder
report a.plan.json -o report.html --chosen 2                        | from 1 to 1
course build                                                        | -o site/
course build -o x --lesson 77                                       | The lessons are 00, 01
course list --notebooks nowhere                                     | no notebook such as
predict {RUNS} --device h1000                                       | Unknown device: 'h1000'. Did you mean
predict {RUNS} --software nanotorn                                  | 'nanotorn'. Did you mean 'nanotron'
predict {RUNS} --device missing.json                                | missing.json
predict missing.csv                                                 | cannot be read
predict bytes.csv                                                   | not UTF-8 text
predict columns.csv                                                 | lacks columns
predict empty.csv                                                   | is empty
predict broken.csv                                                  | is not valid CSV: line 2
launch small.plan.json --steps 0                                    | at least one step
verify small.plan.json --steps 0                                    | at least one step
launch small.plan.json --device tpu                                 | Use 'cpu' or 'cuda'
verify small.plan.json --device tpu                                 | Use 'cpu' or 'cuda'
launch theirs.plan.json                                             | --allow-import
verify theirs.plan.json                                             | --allow-import
launch none.json                                                    | no plan file
verify none.json                                                    | no plan file
verify small.plan.json --interpret --target dask --scheduler tcp://a | --target dask --scheduler tcp://a
verify --random 3 --ports 1-2                                       | --ports 1-2
verify small.plan.json --target slurm                               | only writes a script
verify small.plan.json --target dusk                                | No such launch target
verify small.plan.json --ports 29500                                | needs no ports
plan mlp-tiny --cluster 1x4:v100 -B 4 --pin mm                      | mm
plan mlp-tiny --cluster 1x4:v100 -B 4 --pin mm=RR --pin mm=S0R      | mm
plan mlp-tiny --cluster 1x4:v100 -B 4 --forbid =RR                  | of this name to pin or forbid: ''
plan gpt-tiny --cluster 1x4:v100 --collective-overlap 1.5           | between 0 and 1
plan gpt-tiny --cluster 1x4:v100 --stage-submesh 0=1:2              | STAGE=NxM
plan llama-tiny --cluster 1x4:h100 --from-layout tp=four            | NAME=N
plan llama-tiny --cluster 1x4:h100 --from-layout best --stages 2    | follows no options
plan llama-tiny --cluster 1x4:h100 --from-layout best --pin mm=S0R  | follows no options
plan llama-tiny --cluster 1x4:h100 --from-layout best --baseline zero-3 | starts from no layout
plan gpt-tiny --cluster attached -B 4                               | without --scheduler
plan gpt-tiny --cluster 1x2:cpu --hosts h1 -B 4                     | --hosts is for attached hosts
nodes tcp://8.8.8.8:8786                                            | --allow-remote
verify                                                              | --random
verify a.plan.json --random 3                                       | --random
verify --random 0                                                   | too small: 0
verify --random 2 --families gtp                                    | gpt
verify --random 2 --launched 3                                      | Launch fewer
verify --random 2 --workers 0                                       | number of workers is too small
compare-run .                                                       | Name the folder of a run
logs missing                                                        | not the folder of a run
calibrate --from-run . --like v100 -o mine.json                     | --from-run with --like
calibrate --device cpu --ranks 0                                    | Give 1 to
calibrate --device cpu --ranks 100000                               | Give 1 to
calibrate --device cpu --run-seconds 0                              | The seconds of a timed series must be positive
calibrate --device cpu --like z80                                   | Unknown device
calibrate --device cpu --name 'my gpu'                              | short name
calibrate --device cpu -o mine.txt                                  | mine.txt.json
calibrate --device cpu -o no/such/folder/mine.json                  | Make the folder first
calibrate --device tpu                                              | invalid choice
profile a.plan.json -o kernels.txt                                  | kernels.txt.json
profile a.plan.json -o no/such/folder/kernels.json                  | Make the folder first
profile a.plan.json -o kernels.json --seconds 0                     | The seconds of a profile must be positive
profile missing.plan.json -o kernels.json                           | missing.plan.json
plan gpt-tiny --cluster 1x2:cpu+missing.json -B 4                   | missing.json: No such file
plan gpt-tiny --cluster 1x2:cpu+problem.json -B 4                   | no list named kernels
solve none.json                                                     | cannot be read
solve problem.json --solver elimnation                              | Did you mean 'elimination'
solve problem.json --solver elimination                             | cannot take a memory limit
solve problem.json --time-limit 0                                   | time limit must be positive
solve problem.json --time-limit soon                                | invalid float value
"""
"""What is typed, and words of the answer."""
LATE = ("layouts", "scale", "compare-solvers", "calibrate", "plan mlp-tiny --cluster 1x4:v100 -B 4 --forbid")
"""What says that it begins to price, capture, measure or plan before it knows what is possible."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that are named above."""
    folder = tmp_path_factory.mktemp("files")
    small = small_plan(num_microbatches=4)
    small.save(folder / "small.plan.json")
    replace(small, model=replace(small.model, recipe="theirs:model")).save(folder / "theirs.plan.json")
    example_plan(num_layers=8, num_microbatches=16).save(folder / "a.plan.json")
    problem = {"name": "small", "nodes": {"costs": [[1]], "intervals": [[0, 2]], "usages": [[9]]}, "usage_limit": 10}
    for name, content in (
        ("code.json", b'{"model_type": "x", "auto_map": {"AutoModel": "a/b--c.D"}}'),
        ("deadlock.csv", b"0B0,0F0\n"),
        ("bytes.csv", b"\xff\xfe\x00"),
        ("columns.csv", b"a,b\n1,2\n"),
        ("empty.csv", b"layers,hidden,heads\n"),
        ("broken.csv", b'layers,hidden\n"' + b"x" * 200_000),
        ("problem.json", json.dumps({"problem": problem | {"edges": {"nodes": [], "costs": []}}}).encode()),
    ):
        (folder / name).write_bytes(content)
    return folder


@pytest.mark.parametrize(("typed", "words"), [line.rsplit("|", 1) for line in CASES.strip("\n").splitlines()])
def test_bad_input_is_exit_2_with_one_line(
    typed: str, words: str, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setattr("alpa_explore.calibration.microbenchmarks.spawn", None)  # nothing is measured
    before = sorted(path.name for path in folder.iterdir())
    try:
        code: object = cli.main(shlex.split(typed))
    except SystemExit as stop:
        code = stop.code
    said = capsys.readouterr()
    assert (code, said.out) == (2, "")
    *progress, line = said.err.splitlines()
    assert progress == [] or typed.startswith(LATE), "it is said before any work"
    assert [said for said in (*progress, line) if said.startswith(("alpa-explore: ", "Traceback"))] == [line]
    assert words.strip() in line
    assert sorted(path.name for path in folder.iterdir()) == before
