"""What holds for the package as a whole: rooms and their order, names, sizes, start-up, files."""

import ast
import configparser
import doctest
import importlib
import importlib.metadata
import json
import runpy
import subprocess
import sys
import sysconfig
import time
from fnmatch import fnmatch
from pathlib import Path

import pytest

import neuro_pe
from neuro_pe.comparison._compare import COLUMNS
from neuro_pe.encodings import _base
from neuro_pe.fitting import METRICS
from neuro_pe.imputed_derivative import COLUMNS as IMPUTATION
from neuro_pe.reconstruction import NO_REGION_ERRORS
from neuro_pe.settings import ENCODINGS
from neuro_pe.synthetic import lst_sweep, nmar_results

CHECKOUT = Path(__file__).parents[1]
FOLDERS = {
    "neuro_pe": CHECKOUT / "neuro_pe",
    "neuro_pe.cli": CHECKOUT / "cli",
    "neuro_pe.atlases": CHECKOUT / "atlases",
}

# Data flow one way: a room imports only from rooms above it. Modules on one line are one room.
ROOMS = (
    ("errors",),
    ("atlases",),
    ("settings",),
    ("timeseries",),
    ("derivatives",),
    ("cache",),
    ("bids", "_bids_files", "_bids_select", "_bids_values"),
    ("jobs", "_job_dask", "_job_lock", "_job_pool", "_job_table", "_job_worker"),
    ("windows",),
    ("masking",),
    ("baselines",),
    ("encodings",),
    ("transformer",),
    ("model_folder", "_tensor_files"),
    ("training",),
    ("reconstruction",),
    ("building",),
    ("fitting",),
    ("imputation",),
    ("trained_model", "_model_input"),
    ("estimator",),
    ("experiment", "_baseline_cache"),
    ("imputed_derivative",),
    ("comparison",),
    ("plotting",),
    ("sweeps", "_sweep_figure", "_sweep_source", "_sweep_summary"),
    ("report", "_report_errors", "_report_page", "_fit_groups"),
    ("synthetic",),
    ("cli",),
)
RANK = {module: rank for rank, room in enumerate(ROOMS) for module in room}

# What a room has no business with: packages, and rooms that its rank alone would allow.
MUST_NOT_KNOW = {
    "atlases": {"torch", "nilearn", "nibabel"},
    "settings": {"numpy", "pandas", "torch", "click", "pathlib"},
    "timeseries": {"torch", "nibabel", "pathlib", "os"},
    "derivatives": {"torch"},
    "cache": {"torch", "nibabel"},
    "bids": {"torch"},
    "jobs": {"numpy", "torch", "neuro_pe.settings", "neuro_pe.timeseries"},
    "masking": {"pathlib", "os", "pandas"},
    "baselines": {"torch", "neuro_pe.encodings", "neuro_pe.transformer"},
    "encodings": {"pathlib", "os", "pandas", "nibabel"},
    "transformer": {"pathlib", "os", "pandas", "nibabel", "neuro_pe.atlases", "neuro_pe.bids"},
    "model_folder": {"click", "neuro_pe.transformer"},
    "training": {"numpy", "pandas", "nibabel", "neuro_pe.atlases", "neuro_pe.timeseries"},
    "imputation": {"click", "pathlib", "os"},
    "trained_model": {"click"},
    "estimator": {"click"},
    "comparison": {"torch", "pathlib", "os", "matplotlib", "nilearn"},
    "plotting": {"torch", "neuro_pe.training", "neuro_pe.fitting", "neuro_pe.experiment"},
    "report": {"torch", "neuro_pe.training", "neuro_pe.fitting"},
    "synthetic": {"click", "nibabel", "nilearn", "neuro_pe.atlases", "neuro_pe.bids"},
    "cli": {"numpy", "scipy", "torch"},
}


def sources():
    """Module names with their files, as they stand in the checkout."""
    found = {}
    for package, folder in FOLDERS.items():
        for file in sorted(folder.rglob("*.py")):
            parts = file.relative_to(folder).with_suffix("").parts
            found[".".join([package, *(part for part in parts if part != "__init__")])] = file
    return found


SOURCES = sources()
PUBLIC = [name for name in SOURCES if not any(part[0] == "_" for part in name.split("."))]


def room(module):
    return module.split(".")[1]


def imports(module):
    """All that a module imports, at the top, inside functions or for types only."""
    tree = ast.parse(SOURCES[module].read_text(encoding="utf-8"))
    for statement in ast.walk(tree):
        if isinstance(statement, ast.Import):
            yield from (alias.name for alias in statement.names)
        elif isinstance(statement, ast.ImportFrom):
            assert statement.level == 0, f"{module}: relative import"
            if statement.module == "neuro_pe":
                for alias in statement.names:
                    yield neuro_pe._PUBLIC.get(alias.name, f"neuro_pe.{alias.name}")
            else:
                yield statement.module


def fresh(code, *, folder):
    """Run Python code in a new process, away from the checkout; return what it prints."""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout


def test_the_checkout_is_what_is_tested():
    installed = {name: Path(importlib.import_module(name).__file__).parent for name in FOLDERS}
    assert installed == FOLDERS


@pytest.mark.parametrize("module", [name for name in SOURCES if name != "neuro_pe"])
def test_a_room_imports_only_from_rooms_above(module):
    assert room(module) in RANK, f"{module}: new; give it a place in ROOMS and in CONTRIBUTING.md"
    for imported in imports(module):
        if not imported.startswith("neuro_pe.") or imported == "neuro_pe.__version__":
            continue
        assert RANK[room(imported)] <= RANK[room(module)], f"{module} imports {imported}"


@pytest.mark.parametrize("module", [name for name in SOURCES if name != "neuro_pe"])
def test_a_room_does_not_know_what_is_no_business_of_its(module):
    head = ROOMS[RANK[room(module)]][0]
    unwanted = MUST_NOT_KNOW.get(head, set())
    for imported in imports(module):
        parts = imported.split(".")
        prefixes = {".".join(parts[: n + 1]) for n in range(len(parts))}
        assert not prefixes & unwanted, f"{module} imports {imported}"


def test_the_package_itself_imports_nothing_of_its_own():
    assert not [name for name in imports("neuro_pe") if name.startswith("neuro_pe")]


@pytest.mark.parametrize("module", PUBLIC)
def test_public_names_exist(module):
    loaded = importlib.import_module(module)
    assert loaded.__all__
    for name in loaded.__all__:
        assert hasattr(loaded, name), f"{module}.__all__ names {name}, which is not there"
    assert len(set(loaded.__all__)) == len(loaded.__all__)


@pytest.mark.parametrize("module", SOURCES)
def test_sizes(module):
    text = SOURCES[module].read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 400, f"{module}: over 400 lines; is it two ideas?"
    for item in ast.walk(ast.parse(text)):
        if isinstance(item, ast.FunctionDef):
            docstring = item.body[0] if ast.get_docstring(item) else None
            lines = item.end_lineno - item.lineno + 1
            if docstring is not None:
                lines -= docstring.end_lineno - docstring.lineno + 1
            # scikit-learn wants an estimator's parameters spelled out, twice.
            most = 80 if (module, item.name) == ("neuro_pe.estimator", "__init__") else 60
            assert lines <= most, f"{module}.{item.name}: {lines} lines without its docstring"


@pytest.fixture
def _own_encodings_forgotten():
    """Take away what an example registers."""
    names, builders = list(ENCODINGS), dict(_base._REGISTRY)
    yield
    ENCODINGS[:] = names
    _base._REGISTRY.clear()
    _base._REGISTRY.update(builders)


@pytest.mark.usefixtures("_own_encodings_forgotten")
@pytest.mark.parametrize("module", SOURCES)
def test_examples_in_docstrings(module, capsys):
    loaded = importlib.import_module(module)
    result = doctest.testmod(loaded)
    assert result.failed == 0, capsys.readouterr().out
    # doctest passes over what it does not find; every example of the file has to be one it ran.
    tree = ast.parse(SOURCES[module].read_text(encoding="utf-8"))
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    docstrings = [ast.get_docstring(n) for n in ast.walk(tree) if isinstance(n, documented)]
    parser = doctest.DocTestParser()
    examples = [example for text in docstrings for example in parser.get_examples(text or "")]
    assert result.attempted == sum(doctest.SKIP not in example.options for example in examples)


def test_api_page_is_up_to_date():
    make_page = runpy.run_path(str(CHECKOUT / "docs" / "make_api.py"))["make_page"]
    page = (CHECKOUT / "docs" / "api.md").read_text(encoding="utf-8")
    assert page == make_page(), "docstrings changed; run `make api`"


def test_import_loads_nothing_heavy(tmp_path):
    code = "import sys, json; import neuro_pe; print(json.dumps(sorted(sys.modules)))"
    loaded = {name.split(".")[0] for name in json.loads(fresh(code, folder=tmp_path))}
    assert not loaded & {"numpy", "pandas", "scipy", "torch", "nilearn", "sklearn", "matplotlib"}


def test_help_loads_only_click(tmp_path):
    code = (
        "import sys, json, neuro_pe.cli\n"
        "try: neuro_pe.cli.main(['--help'])\n"
        "except SystemExit: pass\n"
        "print(json.dumps(sorted(sys.modules)))"
    )
    output = fresh(code, folder=tmp_path)
    assert "Usage: neuro-pe" in output
    loaded = {name.split(".")[0] for name in json.loads(output.splitlines()[-1])}
    assert not loaded & {"numpy", "pandas", "scipy", "torch", "nilearn", "sklearn", "matplotlib"}


def test_help_is_instant(tmp_path):
    command = [str(Path(sysconfig.get_path("scripts")) / "neuro-pe"), "--help"]
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        subprocess.run(command, cwd=tmp_path, capture_output=True, check=True)
        seconds.append(time.perf_counter() - start)
    # A tenth of a second on a quiet machine; the bound is for a busy one.
    assert min(seconds) < 1.0


def setup_cfg():
    parser = configparser.ConfigParser()
    parser.read(CHECKOUT / "setup.cfg")
    return parser


def test_every_package_is_installed():
    stated = setup_cfg()["options"]["packages"].split()
    assert sorted(stated) == sorted(
        name for name, file in SOURCES.items() if file.name == "__init__.py"
    )


def test_every_data_file_is_installed():
    patterns = {
        package: text.split() for package, text in setup_cfg()["options.package_data"].items()
    }
    for package in ("neuro_pe", "neuro_pe.atlases"):
        for file in FOLDERS[package].rglob("*"):
            name = file.relative_to(FOLDERS[package]).as_posix()
            if file.is_dir() or file.suffix in (".py", ".pyc"):
                continue
            assert any(
                fnmatch(name, pattern) and name.count("/") == pattern.count("/")
                for pattern in patterns[package]
            ), f"{package}: {name} matches nothing in setup.cfg"


def test_files_page_names_every_column():
    page = (CHECKOUT / "docs" / "files.md").read_text(encoding="utf-8")
    columns = [
        *METRICS,
        *NO_REGION_ERRORS.columns,
        *COLUMNS,
        *IMPUTATION,
        *lst_sweep.ACCURACIES,
        *lst_sweep.STRUCTURE,
        *nmar_results.COLUMNS,
        "fit",
        "kept",
        "reason",
        "split",
    ]
    assert [name for name in columns if f"`{name}`" not in page] == []


def test_versions_agree():
    assert importlib.metadata.version("neuro_pe") == neuro_pe.__version__
    citation = (CHECKOUT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {neuro_pe.__version__}\n" in citation
    assert f"## [{neuro_pe.__version__}]" in (CHECKOUT / "CHANGELOG.md").read_text(encoding="utf-8")
