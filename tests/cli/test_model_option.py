"""MODEL, --hf and --sequence of the commands that take a model: what is wrong is said before torch is imported."""

from __future__ import annotations

from pathlib import Path

import pytest

from alpa_explore import cli


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ([], "one model: neither MODEL nor --hf"),
        (["gpt-tiny", "--hf", "a.json"], "one model: MODEL and --hf"),
        (["--hf", "llama"], "A config is a .json file: 'llama'"),
        (["--hf", "missing.json"], "The config file cannot be read: missing.json"),
        (["vit-tiny", "--sequence", "16"], "vit-tiny has no sequence of tokens"),
        (["gpt-tiny", "--sequence", "0"], "must be a number of tokens: 0"),
        (["gpt-tinny@16"], "Did you mean 'gpt-tiny'"),
    ],
)
def test_a_model_at_fault_is_one_line(words: list[str], line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["plan", *words, "--cluster", "1x2:cpu"]) == 2
    (error,) = capsys.readouterr().err.splitlines()
    assert line in error


def test_remote_code_in_a_config_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "config.json"
    path.write_text('{"model_type": "x", "auto_map": {"AutoModel": "a/b--c.D"}}')
    assert cli.main(["coverage", "--hf", str(path)]) == 2
    assert "never run" in capsys.readouterr().err
