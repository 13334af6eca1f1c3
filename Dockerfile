# The reward server: docker build -t rewardlab-serve . && docker run -e REWARDLAB_TOKEN=... -p 127.0.0.1:8000:8000 rewardlab-serve
FROM python:3.12-slim
RUN useradd --create-home robot
WORKDIR /app
COPY pyproject.toml README.md LICENSE NOTICE ./
COPY src src
RUN pip install --no-cache-dir ".[serve]"
USER robot
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=5s CMD python -c "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/health')"
# 0.0.0.0 is inside the container; the server asks for REWARDLAB_TOKEN before it listens there.
ENTRYPOINT ["rewardlab", "serve", "--host", "0.0.0.0"]
CMD ["pocket"]
