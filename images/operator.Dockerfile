# The operator. Build it from the root of the repository: docs/images.md.
ARG BASE_IMAGE=debian:bookworm-slim

FROM ${BASE_IMAGE} AS build
# A folder of this repository with programs that are built already, for the same base; empty: compiled here.
ARG BINARIES=
COPY . /src
RUN /src/images/compile "${BINARIES}" /out ringmaster-operator

FROM ${BASE_IMAGE}
ARG SOURCE_DATE_EPOCH=0
ARG VERSION=0.1.0
ARG REVISION=unknown
COPY images/install /tmp/install
RUN /tmp/install libcpprest2.10 libprometheus-cpp-core1.0 libspdlog1.10 libfmt9 libyaml-cpp0.7 libre2-9 libxxhash0 \
    libssl3 libstdc++6
COPY --from=build /out/ /usr/local/bin/
LABEL org.opencontainers.image.title="ringmaster-operator" \
      org.opencontainers.image.description="Elastic distributed training on Kubernetes: the operator" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.licenses="Apache-2.0"
USER 65532:65532
STOPSIGNAL SIGTERM
EXPOSE 7070 8081 8443
ENTRYPOINT ["/usr/local/bin/ringmaster-operator"]
