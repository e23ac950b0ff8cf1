"""Nouns: patch: new files for a checkout, as `git apply` reads them."""

from collections.abc import Mapping

FOLDER = "tests/v1/core"


def patch(files: Mapping[str, str], folder: str = FOLDER) -> str:
    """Return a patch that adds these files (name -> text, ending in a newline) to a folder."""
    return "".join(_added(f"{folder}/{name}", text) for name, text in files.items())


def _added(path: str, text: str) -> str:
    lines = text.split("\n")[:-1]
    return "\n".join(
        [
            f"diff --git a/{path} b/{path}", "new file mode 100644", "--- /dev/null",
            f"+++ b/{path}", f"@@ -0,0 +1,{len(lines)} @@", *(f"+{line}" for line in lines), "",
        ]
    )  # fmt: skip
