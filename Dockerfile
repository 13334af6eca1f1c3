# Two images. The reward server, which needs neither torch nor a screen:
#   docker build --target serve -t rewardlab-serve . && docker run -e REWARDLAB_TOKEN=... -p 127.0.0.1:8000:8000 rewardlab-serve
# The whole tool, with torch and simulators; results stay in the folder that is mounted:
#   docker build --target tool -t rewardlab . && docker run --gpus all -v "$PWD:/work" rewardlab stress pocket sample
FROM python:3.12-slim-bookworm AS package
RUN useradd --create-home --uid 1000 robot
WORKDIR /app
COPY pyproject.toml README.md LICENSE NOTICE ./
COPY constraints/py312.txt constraints/
COPY src src

FROM package AS tool
# OSMesa renders on a CPU, EGL on a GPU. Debian keeps one version of each, so none is named.
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install --yes --no-install-recommends libegl1 libosmesa6 \
 && rm -rf /var/lib/apt/lists/*
RUN pip install --no-cache-dir --constraint constraints/py312.txt ".[all]"
USER 1000
WORKDIR /work
ENTRYPOINT ["rewardlab"]

FROM package AS serve
RUN pip install --no-cache-dir --constraint constraints/py312.txt ".[serve]"
USER 1000
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=5s CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/health')"]
# 0.0.0.0 is inside the container; the server asks for REWARDLAB_TOKEN before it listens there.
ENTRYPOINT ["rewardlab", "serve", "--host", "0.0.0.0"]
CMD ["pocket"]
