# One image for the operator, the agent, the command line and the examples.
#
#   docker build -t punctual:dev .        with a network
#   hack/image                            also without one in the build: wheels are fetched beforehand
#
# BASE: any Debian with Python 3.11 or later and its venv module.
ARG BASE=python:3.11-slim-bookworm

# Locked dependencies, without pip: this layer changes with the lock only.
FROM ${BASE} AS dependencies
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
# the second name may match nothing: then pip asks its index
COPY requirements/*.lock build/wheel[s] /wheels/
RUN set -eu; \
    python3 -m venv /opt/build; \
    python3 -m venv --without-pip /opt/punctual/venv; \
    if ls /wheels/*.whl >/dev/null 2>&1; then export PIP_NO_INDEX=1 PIP_FIND_LINKS=/wheels; fi; \
    /opt/build/bin/pip install --quiet --require-hashes --only-binary :all: -r /wheels/build.lock; \
    /opt/build/bin/pip --python /opt/punctual/venv/bin/python install --quiet \
        --require-hashes --only-binary :all: --no-compile -r /wheels/image.lock; \
    site=$(/opt/punctual/venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))'); \
    find "$site" -depth -type d \( -name tests -o -name test \) -path '*/numpy/*' -exec rm -r {} +; \
    echo /opt/punctual/lib > "$site/punctual.pth"; \
    /opt/punctual/venv/bin/python -m compileall -q -j 0 --invalidation-mode unchecked-hash "$site"

# Our own code: small, and all that a change of it touches.
FROM dependencies AS code
COPY pyproject.toml README.md LICENSE /src/
COPY operator /src/operator
COPY node-agent /src/node-agent
RUN set -eu; \
    /opt/build/bin/pip wheel --quiet --no-build-isolation --no-deps --no-index --wheel-dir /dist /src; \
    /opt/build/bin/pip --python /opt/punctual/venv/bin/python install --quiet --no-deps --no-index --no-compile \
        --target /opt/punctual/lib /dist/*.whl; \
    /opt/punctual/venv/bin/python -m compileall -q -j 0 --invalidation-mode unchecked-hash /opt/punctual/lib

FROM ${BASE}
# some bases bring their standard library uncompiled, and a read-only container would compile it at every start
RUN python3 -m compileall -q -j 0 -x '/(test|idlelib|lib2to3|tkinter|turtledemo|ensurepip|site-packages|dist-packages)/' \
        "$(python3 -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')"
# the example clocks reads the time zones of the base, without comments
RUN mkdir -p /opt/punctual/examples/clocks && \
    grep -v '^#' /usr/share/zoneinfo/zone.tab > /opt/punctual/examples/clocks/zones.tab
COPY --from=dependencies /opt/punctual/venv /opt/punctual/venv
COPY examples /opt/punctual/examples
COPY --from=code /opt/punctual/lib /opt/punctual/lib
ENV PATH=/opt/punctual/lib/bin:/opt/punctual/venv/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
# the agent asks for uid 0 in its pod (without capabilities): cgroup files belong to root
USER 65532:65532
CMD ["punctual-operator"]
