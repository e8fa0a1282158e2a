"""The tabs about uniform layouts, which need no plan: `layouts` (Layouts) and `fit_scale` (Fit & scale)."""
