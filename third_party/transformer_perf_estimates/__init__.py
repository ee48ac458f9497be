"""Answers the questions of transformer-perf-estimates (arXiv 2410.00273, PMBS at SC24) under its
own formulas.

    python -m third_party.transformer_perf_estimates evaluate CASE.json [--as-published]
    python -m third_party.transformer_perf_estimates search CASE.json [--as-published] [--top N]
    python -m third_party.transformer_perf_estimates compare CASE.json  # and under our own physics
    python -m third_party.transformer_perf_estimates curves CASES.json [--output FILE.csv]

Which formula is where: ``collectives`` messages, ``operators`` work of one operator, ``blocks``
operators of a layer, ``timing`` their seconds, ``totals`` an iteration and its memory, ``spaces``
what is searched, ``corrections`` what is put right unless ``--as-published``; ``case_files`` the
format; ``own_hardware`` and ``own_requests`` the same question to our own physics, ``comparison``
and ``own_parts`` what that changes; ``curves`` the best over the number of GPUs. All of it is
arrays over configurations:

    training = Training(Strategy.TWO_D, published_model("gpt3_1T"), published_system("B200"), 64,
    16384, 4096) found = search(training) estimate_at(found.estimates, found.best[0]).seconds
"""

from .configurations import Configuration as Configuration
from .configurations import Configurations as Configurations
from .configurations import LayerLayouts as LayerLayouts
from .configurations import Strategy as Strategy
from .configurations import Training as Training
from .corrections import AS_PUBLISHED as AS_PUBLISHED
from .corrections import CORRECTED as CORRECTED
from .corrections import Correction as Correction
from .estimates import Estimate as Estimate
from .estimates import OperatorEstimate as OperatorEstimate
from .estimates import estimate_at as estimate_at
from .models import TransformerModel as TransformerModel
from .models import published_model as published_model
from .models import published_models as published_models
from .search import Search as Search
from .search import best_of as best_of
from .search import search as search
from .spaces import space as space
from .systems import System as System
from .systems import published_system as published_system
from .systems import published_systems as published_systems
from .totals import Estimates as Estimates
from .totals import estimate as estimate
