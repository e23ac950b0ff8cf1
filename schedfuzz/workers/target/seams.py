"""Nouns: the table of seams.

One line per dimension; the order is that of their effects on the config.
"""

from schedfuzz.workers.target.seam import Seam
from schedfuzz.workers.target.seam_asks import ASK_SEAMS
from schedfuzz.workers.target.seam_connector import CONNECTOR_SEAMS
from schedfuzz.workers.target.seam_core import CORE_SEAMS
from schedfuzz.workers.target.seam_diffusion import DIFFUSION_SEAMS
from schedfuzz.workers.target.seam_encoder import ENCODER_SEAMS
from schedfuzz.workers.target.seam_groups import GROUP_SEAMS
from schedfuzz.workers.target.seam_lora import LORA_SEAMS
from schedfuzz.workers.target.seam_pooling import POOLING_SEAMS
from schedfuzz.workers.target.seam_runner import RUNNER_SEAMS
from schedfuzz.workers.target.seam_scheduler import SCHEDULER_SEAMS
from schedfuzz.workers.target.seam_spec import SPEC_SEAMS
from schedfuzz.workers.target.seam_structured import STRUCTURED_SEAMS

SEAMS: tuple[Seam, ...] = (
    *CORE_SEAMS,
    *RUNNER_SEAMS,
    *SPEC_SEAMS,
    *SCHEDULER_SEAMS,
    *GROUP_SEAMS,
    *CONNECTOR_SEAMS,
    *STRUCTURED_SEAMS,
    *DIFFUSION_SEAMS,
    *ASK_SEAMS,
    *POOLING_SEAMS,
    *ENCODER_SEAMS,
    *LORA_SEAMS,
)
