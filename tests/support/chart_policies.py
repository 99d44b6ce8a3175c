"""All policies, by name."""

import chart_policies_objects
import chart_policies_pods
from chart_policy import POLICIES

__all__ = ["POLICIES", "chart_policies_objects", "chart_policies_pods"]
