"""AMPeD's question (Moolchandani et al., ISPASS 2023): how long a training takes, by cause, and
which degrees are best.

    # config_summary.txt, training_time_breakdown.txt; JSON on standard output
    python -m third_party.amped run CONFIG.json
    # all permutations of batch size and the six degrees
    python -m third_party.amped optimize CONFIG.json

    from third_party.amped import estimate_training_time
    estimate_training_time("H100 PCIe").days

The configuration's format is at the head of ``configuration``, the formulas are in ``mapping``,
``network``, ``system`` and ``times``, and ``corrections`` says what is wrong with those published.
No code of AMPeD is used; its repository has none.
"""

from .breakdown import Breakdown as Breakdown
from .breakdown import Line as Line
from .command_line import main as main
from .configuration import Configuration as Configuration
from .configuration import configuration_of as configuration_of
from .configuration import read_configuration as read_configuration
from .corrections import CORRECTIONS as CORRECTIONS
from .estimate import TrainingTime as TrainingTime
from .estimate import estimate as estimate
from .estimate import estimate_training_time as estimate_training_time
from .estimate import estimateTrainingTime as estimateTrainingTime
from .lookup import shipped_tables as shipped_tables
from .lookup import with_tables_of as with_tables_of
from .search import SearchResult as SearchResult
from .search import optimize as optimize
from .times import TimeQuantities as TimeQuantities
