import pytest

from neuro_pe.cli import main


def run(capsys, *arguments):
    with pytest.raises(SystemExit) as ended:
        main(["compare-networks", *map(str, arguments)])
    captured = capsys.readouterr()
    return ended.value.code or 0, captured.out, captured.err


def test_prints_the_sources_side_by_side_and_says_where_the_report_is(make_fit, capsys):
    folder = make_fit().parent
    make_fit(seed=1)
    code, out, err = run(capsys, folder, "--permutations", 20)
    assert code == 0
    assert "positional encoding" in out
    assert "learned change" in out
    assert "functional connectivity" in out
    assert "2 seeds" in out
    assert f"Report: {folder / 'report.html'}" in out
    assert (folder / "report.html").is_file()
    assert (folder / "comparison.tsv").is_file()
    assert err == ""


def test_a_model_folder_a_partition_file_and_another_place(make_fit, capsys, tmp_path, glasser):
    file = tmp_path / "mine.tsv"
    file.write_text("".join(f"{name}\t{'AB'[i % 2]}\n" for i, name in enumerate(glasser)))
    code, out, _ = run(
        capsys, make_fit(), "--partition", file, "--output-dir", tmp_path / "new" / "place",
        "--permutations", 20, "--seed", 3,
    )  # fmt: skip
    assert code == 0
    assert "2 networks (mine)" in out
    assert (tmp_path / "new" / "place" / "report.html").is_file()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["nowhere"], "nowhere: found nothing"),
        (["models", "--partition", "power"], "'power'"),
        (["models", "--partition", "missing.tsv"], "missing.tsv: No such file"),
        (["models", "--permutations", "0"], "--permutations"),
        ([], "MODEL"),
    ],
)
def test_a_mistake_is_one_line(make_fit, capsys, monkeypatch, arguments, expected):
    monkeypatch.chdir(make_fit().parent.parent)
    code, out, err = run(capsys, *arguments)
    assert code == 2
    assert out == ""
    assert expected in err.splitlines()[-1]
    assert "Traceback" not in err


def test_help_has_an_example(capsys):
    code, out, _ = run(capsys, "--help")
    assert code == 0
    assert "neuro-pe compare-networks results" in out
