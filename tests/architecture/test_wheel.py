"""What a user gets from `pip install`: built here as a release would be, without network."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.architecture.sources import PACKAGES, ROOT, files


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder], cwd=ROOT, check=True)
    (built,) = folder.glob("*.whl")
    return built


def test_the_wheel_holds_every_source_and_data_file_of_both_packages(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    expected = {
        f"{Path(package).name}/{path.relative_to(ROOT / package).as_posix()}"
        for package in PACKAGES
        for path in files(".py", ".json", ".js", ".css", ".md", ".toml", ".typed", ".ipynb", ".j2", folders=(package,))
    }
    assert {"alpa_explore/__init__.py", "alpa_explore_widgets/__init__.py"} <= expected
    assert expected - packed == set()
    assert "alpa_explore/py.typed" in packed


def test_the_wheel_names_its_license_and_its_command(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        named = {Path(name).name: archive.read(name).decode() for name in archive.namelist() if ".dist-info/" in name}
    assert "License-Expression: Apache-2.0" in named["METADATA"]
    assert "Apache License" in named["LICENSE"]
    assert "alpa-explore = alpa_explore.cli:main" in named["entry_points.txt"]


def test_the_wheel_brings_the_extension_to_where_lab_looks_for_it(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    folder = "data/share/jupyter/labextensions/alpa-explore/"
    for file in ("package.json", "install.json", "static/remoteEntry.js"):
        assert any(name.endswith(folder + file) for name in names)
