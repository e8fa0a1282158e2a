"""The inter-operator pass: layers and submeshes into stages (`pipeline_dp.pipeline_dp`)."""
