"""`torch.autocast` of a model, traced as written on every machine, with or without the device that it names.

    kernels           which operators torch casts in autocast of an accelerator, and how, as kernels of autocast on the
                      CPU, where the tensors of a trace are
    regions           `autocast_as_written`: the regions of a model while it is traced

They import `errors` and torch.
"""
