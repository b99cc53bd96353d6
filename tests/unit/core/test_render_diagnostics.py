from rightslice.core.errors import BadInputError, Diagnostic, InfeasibleError, Location
from rightslice.core.render import MAX_SHOWN, WIDTH, render_diagnostic, render_diagnostics


def _at(excerpt: str, column: int, width: int, message: str = "wrong", hint: str = "") -> Diagnostic:
    return Diagnostic("RS0312", message, Location("w.yaml", 12, column), hint, excerpt=excerpt, excerpt_width=width)


def test_block_form_and_summary() -> None:
    found = (
        _at("accelerators: {allow: [H100, L4]}", 24, 4, 'unknown accelerator "H100"', "did you mean H100-SXM-80GB?"),
        Diagnostic("RS0401", "there is no such file", Location("x.yaml")),
        Diagnostic("RS0304", "no load", Location("w.yaml", 3, 1), severity="warn"),
    )
    assert render_diagnostics(BadInputError(found, "rightslice catalog accelerators")) == (
        'error[RS0312] w.yaml:12:24: unknown accelerator "H100"\n'
        "   12 | accelerators: {allow: [H100, L4]}\n"
        "      |                        ^^^^ did you mean H100-SXM-80GB?\n"
        "error[RS0401] x.yaml: there is no such file\n"
        "warn[RS0304] w.yaml:3:1: no load\n"
        "2 errors, 1 warning. next: rightslice catalog accelerators"
    )
    assert render_diagnostics(InfeasibleError("RS4001", "no")) == "error[RS4001] no"


def test_long_lines_are_cut_around_the_token() -> None:
    for start in (0, 40, 500, 991):
        line = "x" * start + "TOKEN" + "y" * (996 - start)
        source, carets = render_diagnostic(_at(line, start + 1, 5)).splitlines()[1:]
        assert len(source) <= WIDTH + 8
        assert source[carets.index("^") : carets.rindex("^") + 1] == "TOKEN"
    whole = render_diagnostic(_at("z" * 5000, 1, 5000)).splitlines()
    assert max(len(line) for line in whole) <= WIDTH + 8


def test_columns_hold_with_tabs_and_wide_characters() -> None:
    source, carets = render_diagnostic(_at("\tkey: H100", 7, 4)).splitlines()[1:]
    assert source == "   12 | →key: H100"
    assert source[carets.index("^") :] == "H100"
    wide, carets = render_diagnostic(_at("名前: H100", 5, 4)).splitlines()[1:]
    assert carets.index("^") == wide.index("H100") + 2  # two characters that take two columns each


def test_nothing_a_stranger_wrote_reaches_the_terminal() -> None:
    evil = "\x1b[31m\x07\u202e\x9b\r\n\ud800"
    for diagnostic in (_at(f"a: {evil}", 4, 9, evil, evil), Diagnostic("RS0401", evil, Location(evil), evil)):
        shown = render_diagnostic(diagnostic)
        assert all(character.isprintable() for line in shown.split("\n") for character in line)
        shown.encode()
        assert diagnostic.one_line().isprintable()


def test_many_mistakes_are_counted() -> None:
    shown = render_diagnostics(BadInputError([_at("abc", 1, 1)] * (MAX_SHOWN + 1200)))
    assert shown.endswith("… and 1,200 more\n1,250 errors.")
    assert shown.count("error[") == MAX_SHOWN
