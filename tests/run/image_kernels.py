"""What the forward kernels of convolution, pooling, normalisation and bags must equal: written out with numpy, or torch's modules."""

from __future__ import annotations

import numpy as np
import torch


def convolve(x, k, stride, pad, groups, dilation):
    """Window by window, group by group."""
    x = np.pad(x.numpy(), ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    k = k.numpy()
    height, width = (dilation * (n - 1) + 1 for n in k.shape[2:])
    size = [(n - reach) // stride + 1 for n, reach in zip(x.shape[2:], (height, width), strict=True)]
    out = np.zeros((x.shape[0], k.shape[0], *size))
    for part, (images, kernels) in enumerate(zip(np.split(x, groups, 1), np.split(k, groups), strict=True)):
        at = slice(part * len(kernels), (part + 1) * len(kernels))
        for i in range(size[0]):
            for j in range(size[1]):
                rows = slice(i * stride, i * stride + height, dilation)
                window = images[:, :, rows, j * stride : j * stride + width : dilation]
                out[:, at, i, j] = np.einsum("nchw,ochw->no", window, kernels)
    return torch.from_numpy(out)


def transposed(x, k, stride, pad, output_pad, groups):
    """Every element lays its kernel down."""
    x, k = x.numpy(), k.numpy()
    n, _, h, w = x.shape
    _, o, kh, kw = k.shape
    out = np.zeros((n, o * groups, (h - 1) * stride + kh + output_pad, (w - 1) * stride + kw + output_pad))
    for part, (images, kernels) in enumerate(zip(np.split(x, groups, 1), np.split(k, groups), strict=True)):
        for i in range(h):
            for j in range(w):
                laid = np.einsum("nc,cohw->nohw", images[:, :, i, j], kernels)
                out[:, part * o : (part + 1) * o, i * stride : i * stride + kh, j * stride : j * stride + kw] += laid
    return torch.from_numpy(out[:, :, pad : out.shape[2] - pad, pad : out.shape[3] - pad])


def pooled(take, outside, x, kernel, stride, pad):
    """Window by window."""
    x = np.pad(x.numpy(), ((0, 0), (0, 0), (pad, pad), (pad, pad)), constant_values=outside)
    rows, columns = (range(0, n - kernel + 1, stride) for n in x.shape[2:])
    out = np.stack(
        [np.stack([take(x[:, :, i : i + kernel, j : j + kernel], axis=(2, 3)) for j in columns], -1) for i in rows], -2
    )
    return torch.from_numpy(out)


def group_norm(x, weight, bias, groups, eps):
    parts = x.reshape(len(x), groups, -1)
    parts = (parts - parts.mean(-1, True)) / torch.sqrt(parts.var(-1, correction=0, keepdim=True) + eps)
    along = [-1] + [1] * (x.dim() - 2)
    return parts.reshape(x.shape) * weight.reshape(along) + bias.reshape(along)


def batch_norm(x, mean, var, weight, bias, eps):
    by_channel = x.movedim(1, -1)
    return ((by_channel - mean) / torch.sqrt(var + eps) * weight + bias).movedim(-1, 1)


def moments(x):
    by_channel = x.movedim(1, 0).flatten(1)
    return by_channel.mean(1), by_channel.square().mean(1)


IMAGES = {
    "conv2d": convolve,
    "conv_transpose2d": transposed,
    "max_pool2d": lambda x, kernel, stride, pad: pooled(np.max, -np.inf, x, kernel, stride, pad),
    "avg_pool2d": lambda x, kernel, stride, pad: pooled(np.mean, 0, x, kernel, stride, pad),
    "adaptive_avg_pool2d": lambda x, size: torch.nn.AdaptiveAvgPool2d(size)(x),
    "upsample_nearest2d": lambda x, factor: torch.from_numpy(x.numpy().repeat(factor, 2).repeat(factor, 3)),
    "batch_norm_stats": moments,
    "batch_norm": batch_norm,
    "group_norm": group_norm,
    "embedding_bag": lambda ids, table: torch.nn.functional.one_hot(ids, len(table)).sum(-2).double() @ table,
    "logsumexp": lambda x: torch.log(torch.exp(x).sum(-1)),
    "pick": lambda x, index: (x * torch.nn.functional.one_hot(index, x.shape[-1])).sum(-1),
    "binary_cross_entropy_with_logits": lambda z, y: (torch.log1p(torch.exp(z)) - z * y).mean(),
    "lower_triangle": lambda x: torch.from_numpy(x.numpy()[..., *np.tril_indices(x.shape[-1], -1)]),
}
