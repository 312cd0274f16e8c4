# SPDX-License-Identifier: Apache-2.0
# The operator image. Build it from the root of the repository: docs/operate/images.md.
# BUILD_IMAGE: a Debian 12, where the programs and their libraries come from. BASE_IMAGE: the base; see images/gather.
ARG BUILD_IMAGE=debian:bookworm-slim
ARG BASE_IMAGE=debian:bookworm-slim

FROM ${BUILD_IMAGE} AS build
# A folder of this repository with programs built on Debian 12 (default: compile them here).
ARG BINARIES=
COPY . /src
RUN /src/images/compile "${BINARIES}" /out/usr/local/bin ringmaster-operator
RUN /src/images/gather /out libcpprest2.10 libprometheus-cpp-core1.0 libspdlog1.10 libfmt9 libyaml-cpp0.7 libre2-9 libxxhash0 \
    libssl3 libstdc++6

FROM ${BASE_IMAGE}
ARG SOURCE_DATE_EPOCH=0
ARG VERSION=0.1.0
ARG REVISION=unknown
COPY --from=build /out/ /
# Fails when the base is too old.
RUN ["/usr/local/bin/ringmaster-operator", "--version"]
LABEL org.opencontainers.image.title="ringmaster-operator" \
      org.opencontainers.image.description="Elastic distributed training on Kubernetes: the operator" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.licenses="Apache-2.0"
USER 65532:65532
STOPSIGNAL SIGTERM
EXPOSE 7070 8081 8443
ENTRYPOINT ["/usr/local/bin/ringmaster-operator"]
