"""`rightslice size`: does it fit, on what, with how many sequences?"""

from __future__ import annotations

from rightslice.catalogue.accelerators import accelerators, device, resolve_accelerator
from rightslice.catalogue.engines import engine
from rightslice.catalogue.models import resolve_model
from rightslice.core.errors import BadInputError, Diagnostic, did_you_mean
from rightslice.memory.sizing import SizeReport, SizeRequest, size
