"""Write ``docs/api.md`` from the docstrings of the package (``make api``)."""

import importlib
import inspect
import pkgutil
import re
from pathlib import Path
from typing import Any

import neuro_pe

LISTS = ("Parameters", "Returns", "Yields", "Raises", "Attributes")
HEAD = """# The Python interface

Made from the docstrings by `make api`. The names of the first table are all that most work needs;
`import neuro_pe as npe` gives them. The modules below it are for those who build on the parts.
The command line explains itself: `neuro-pe --help`, `neuro-pe train --help`, ...

| name | what it is |
|---|---|
"""


def make_page() -> str:
    """Return the whole page."""
    page = HEAD
    for name in (name for name in neuro_pe.__all__ if not name.startswith("_")):
        thing = getattr(neuro_pe, name)
        heading = thing.__name__ if inspect.ismodule(thing) else name
        page += f"| [`npe.{name}`](#{anchor(heading)}) | {summary(thing)} |\n"
    packages = [importlib.import_module(name) for name in ("neuro_pe", "neuro_pe.atlases")]
    names = {packages[1].__name__} | {
        f"{package.__name__}.{module.name}"
        for package in packages
        for module in pkgutil.iter_modules(package.__path__)
        if not module.name.startswith("_") and module.name != "cli"
    }
    return page + "".join(module_section(importlib.import_module(name)) for name in sorted(names))


def module_section(module: Any) -> str:
    text = f"\n## {module.__name__}\n\n{markdown(module)}\n"
    for name in module.__all__:
        text += thing_section(name, getattr(module, name))
    return text


def thing_section(name: str, thing: Any) -> str:
    if not (inspect.isclass(thing) or inspect.isroutine(thing)):
        return f"\n### {name}\n\n    {thing!r}\n"
    text = f"\n### {name}\n\n```python\n{name}{signature(thing)}\n```\n\n{markdown(thing)}\n"
    members = vars(thing).items() if inspect.isclass(thing) else ()
    for member_name, member in members:
        function = getattr(member, "__func__", member)  # a class method's
        if member_name.startswith("_") or not inspect.getdoc(function):
            continue
        if isinstance(function, property):
            text += f"\n#### {name}.{member_name}\n\n{markdown(function)}\n"
        elif inspect.isfunction(function):
            call = f"{name}.{member_name}{signature(getattr(thing, member_name))}"
            text += f"\n#### {name}.{member_name}\n\n```python\n{call}\n```\n\n"
            text += f"{markdown(function)}\n"
    return text


def signature(thing: Any) -> str:
    """Names and defaults; the types are in the docstring."""
    try:
        whole = inspect.signature(thing)
    except ValueError:  # an exception without a constructor of its own
        return "(message)"
    parameters = [
        parameter.replace(annotation=inspect.Parameter.empty)
        for parameter in whole.parameters.values()
        if parameter.name != "self"
    ]
    text = str(whole.replace(parameters=parameters, return_annotation=inspect.Signature.empty))
    # A function as a default shows its address, which differs each time.
    return re.sub(r"<function (\w+) at 0x\w+>", r"\1", text)


def summary(thing: Any) -> str:
    return roles((inspect.getdoc(thing) or "").splitlines()[0])


def markdown(thing: Any) -> str:
    """Turn a numpydoc docstring into Markdown."""
    parts = re.split(r"^(\w[\w ]*)\n-{3,}\n", inspect.getdoc(thing) or "", flags=re.MULTILINE)
    blocks = [roles(parts[0].strip())]
    for title, content in zip(parts[1::2], parts[2::2], strict=True):
        blocks.append(f"**{title}**")
        if title == "Examples":
            blocks.append(f"```pycon\n{content.strip()}\n```")
        elif title in LISTS:
            blocks.append(items(content.strip()))
        else:
            blocks.append(roles(content.strip()))
    return "\n\n".join(blocks)


def items(content: str) -> str:
    """A list of ``name : type`` lines with indented explanations."""
    lines = []
    for line in content.splitlines():
        if line and not line.startswith(" "):
            lines.append(f"- `{line}`" if "`" not in line else f"- {roles(line)}")
        elif line.strip():
            lines.append(f"  {roles(line.strip())}")
    return "\n".join(lines)


def roles(text: str) -> str:
    """References and literals of reStructuredText as code."""
    return re.sub(r":\w+:`~?([^`]+)`", r"`\1`", text).replace("``", "`")


def anchor(heading: str) -> str:
    return heading.lower().replace(".", "")


if __name__ == "__main__":
    Path(__file__).with_name("api.md").write_text(make_page(), encoding="utf-8")
