"""Makes one C++ source out of the page: embed.py page.html OUT.cpp

A line '@include FILE' in the page stands for the file of that name beside it. '@schedule' stays: it is
where the program puts the schedule.
"""
import pathlib
import sys


def main(page: str, out: str) -> None:
    source = pathlib.Path(page)
    lines = []
    for line in source.read_text(encoding="utf-8").splitlines():
        if line.startswith("@include "):
            lines += (source.parent / line.split()[1]).read_text(encoding="utf-8").splitlines()
        else:
            lines.append(line)
    literals = "\n".join('    R"page(' + line + '\n)page"' for line in lines)
    pathlib.Path(out).write_text(
        '#include "cli/explain/page.hpp"\n\nnamespace treering::explain {\n\n'
        f"const char* const kPage =\n{literals};\n\n}}  // namespace treering::explain\n",
        encoding="utf-8")


main(*sys.argv[1:])
