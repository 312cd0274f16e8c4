# A worker: the agent, which is PID 1 of a pod, and the trainer that it starts. Build it from the root of the repository:
# docs/images.md. Without CUDA=ON it trains on CPUs alone.
ARG BASE_IMAGE=debian:bookworm-slim

FROM ${BASE_IMAGE} AS build
# A folder of this repository with programs that are built already, for the same base; empty: compiled here.
ARG BINARIES=
ARG CUDA=OFF
COPY . /src
RUN CUDA=${CUDA} /src/images/compile "${BINARIES}" /out ringmaster-agent ringmaster-worker ringmaster

FROM ${BASE_IMAGE}
ARG SOURCE_DATE_EPOCH=0
ARG VERSION=0.1.0
ARG REVISION=unknown
COPY images/install /tmp/install
# UCX loads its transports at run time, and libibverbs the driver of each make of device: without the ibverbs-providers
# there is no RDMA, and nothing says so.
RUN /tmp/install libucx0 libibverbs1 ibverbs-providers librdmacm1 libdnnl2 libgomp1 libnuma1 libspdlog1.10 libfmt9 \
    libyaml-cpp0.7 libre2-9 libxxhash0 libssl3 libstdc++6 libcpprest2.10
COPY --from=build /out/ /usr/local/bin/
LABEL org.opencontainers.image.title="ringmaster-worker" \
      org.opencontainers.image.description="Elastic distributed training on Kubernetes: a worker" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.licenses="Apache-2.0"
STOPSIGNAL SIGTERM
ENTRYPOINT ["/usr/local/bin/ringmaster-agent"]
