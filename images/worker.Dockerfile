# SPDX-License-Identifier: Apache-2.0
# The worker image: the agent, which is PID 1 of a pod, and the trainer that the agent starts. Build it from the root of the
# repository: docs/operate/images.md. Without CUDA=ON it trains on CPUs only; with CUDNN=ON attention can use cuDNN.
# BUILD_IMAGE: a Debian 12, where the programs and their libraries come from. BASE_IMAGE: the base; see images/gather.
ARG BUILD_IMAGE=debian:bookworm-slim
ARG BASE_IMAGE=debian:bookworm-slim

FROM ${BUILD_IMAGE} AS build
# A folder of this repository with programs built on Debian 12 (default: compile them here).
ARG BINARIES=
ARG CUDA=OFF
ARG CUDNN=OFF
COPY . /src
RUN CUDA=${CUDA} CUDNN=${CUDNN} /src/images/compile "${BINARIES}" /out/usr/local/bin ringmaster-agent ringmaster-worker ringmaster
# UCX loads its transports at run time, and libibverbs loads a driver for each make of device: without ibverbs-providers RDMA
# is missing, and nothing reports it.
RUN /src/images/gather /out libucx0 libibverbs1 ibverbs-providers librdmacm1 libdnnl2 libgomp1 libnuma1 libspdlog1.10 libfmt9 \
    libyaml-cpp0.7 libre2-9 libxxhash0 libssl3 libstdc++6 libcpprest2.10 libsimdjson14 libprometheus-cpp-core1.0

FROM ${BASE_IMAGE}
ARG SOURCE_DATE_EPOCH=0
ARG VERSION=0.1.0
ARG REVISION=unknown
COPY --from=build /out/ /
# Fails when the base is too old.
RUN ["/usr/local/bin/ringmaster-worker", "devices"]
LABEL org.opencontainers.image.title="ringmaster-worker" \
      org.opencontainers.image.description="Elastic distributed training on Kubernetes: a worker" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.licenses="Apache-2.0"
STOPSIGNAL SIGTERM
ENTRYPOINT ["/usr/local/bin/ringmaster-agent"]
