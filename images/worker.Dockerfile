# SPDX-License-Identifier: Apache-2.0
# A worker: the agent, which is PID 1 of a pod, and the trainer that it starts. Build it from the root of the repository:
# docs/operate/images.md. Without CUDA=ON it trains on CPUs alone; with CUDNN=ON, too, attention may be
# cuDNN's.
# BUILD_IMAGE: a Debian 12, which the programs and their libraries come from. BASE_IMAGE: what they stand on; see images/gather.
ARG BUILD_IMAGE=debian:bookworm-slim
ARG BASE_IMAGE=debian:bookworm-slim

FROM ${BUILD_IMAGE} AS build
# A folder of this repository with programs that are built already, on Debian 12; empty: compiled here.
ARG BINARIES=
ARG CUDA=OFF
ARG CUDNN=OFF
COPY . /src
RUN CUDA=${CUDA} CUDNN=${CUDNN} /src/images/compile "${BINARIES}" /out/usr/local/bin ringmaster-agent ringmaster-worker ringmaster
# UCX loads its transports at run time, and libibverbs the driver of each make of device: without the ibverbs-providers
# there is no RDMA, and nothing says so.
RUN /src/images/gather /out libucx0 libibverbs1 ibverbs-providers librdmacm1 libdnnl2 libgomp1 libnuma1 libspdlog1.10 libfmt9 \
    libyaml-cpp0.7 libre2-9 libxxhash0 libssl3 libstdc++6 libcpprest2.10

FROM ${BASE_IMAGE}
ARG SOURCE_DATE_EPOCH=0
ARG VERSION=0.1.0
ARG REVISION=unknown
COPY --from=build /out/ /
# A base that is too old shows here.
RUN ["/usr/local/bin/ringmaster-worker", "devices"]
LABEL org.opencontainers.image.title="ringmaster-worker" \
      org.opencontainers.image.description="Elastic distributed training on Kubernetes: a worker" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.licenses="Apache-2.0"
STOPSIGNAL SIGTERM
ENTRYPOINT ["/usr/local/bin/ringmaster-agent"]
