"""What distinguishes the output of sailbandwidth from that of nvbandwidth."""

from __future__ import annotations

from .dialects import Dialect
from .style import DialectName

#: Versions of sailbandwidth; 2.1 is the form of its guide.
DIALECTS: dict[DialectName, Dialect] = {
    "sailbandwidth-2.1": Dialect("sailbandwidth", "v2.1.0", "v0.8", "0.8", exact=False),
}
