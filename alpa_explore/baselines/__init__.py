"""What people do by hand, as plans: priced by the same cost model, to hold against the automatic plan."""
