"""Nouns: newest release.

What the package index offers now, as uv resolves it for this Python and build.
"""

import os
import re
import subprocess
import sys

import uv

from schedfuzz.corpus.errors import InfraError
from schedfuzz.workers.environment import PACKAGES, build_kind
from schedfuzz.workers.home import Home

ASK_SECONDS = 120


def newest_release(home: Home) -> str:
    """Return the newest release of vLLM that this machine can install.

    Raises InfraError when the index cannot be asked.
    """
    package = PACKAGES[build_kind()]
    variables = os.environ | {"UV_CACHE_DIR": str(home.uv_cache), "UV_NO_PROGRESS": "1"}
    try:
        said = subprocess.run(
            [
                uv.find_uv_bin(), "pip", "compile", "-", "--no-deps", "--no-header",
                "--no-annotate", "--python", sys.executable, "--refresh-package", package,
            ],
            input=package, capture_output=True, text=True, timeout=ASK_SECONDS, env=variables,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InfraError(f"the package index was not asked for {package}: {error}") from None
    found = re.search(rf"^{package}==(\S+)", said.stdout, re.MULTILINE)
    if said.returncode != 0 or found is None:
        why = (said.stderr.strip().splitlines() or ["no answer"])[-1]
        raise InfraError(f"the package index does not say what {package} there is: {why}")
    return found.group(1)
