package provision

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	dockercontainer "github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
	tclog "github.com/testcontainers/testcontainers-go/log"
)

const (
	pullTimeout = 3 * time.Minute
	// labelOwner marks our containers with the process that started them, so that leftovers can be distinguished from those
	// of a test that still runs.
	labelOwner = "com.github.interlock-go.lock.owner"
)

// container is a server in a container, at a fixed port of loopback.
type container struct {
	docker *client.Client
	image  string
	cmd    []string
	files  []string
	folder string
	inside int // port in the container
	port   *reservedPort
	host   bool // use this machine's loopback interface: see sharesNetwork

	mu     sync.Mutex
	tc     testcontainers.Container
	up     bool
	paused bool
}

// dockerClient connects once, and clears what killed test runs left.
var dockerClient = sync.OnceValues(func() (*client.Client, error) {
	tclog.SetDefault(tclog.NewNoopLogger()) // its banner drowns the tests' own output
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	provider, err := testcontainers.NewDockerProvider() // finds the engine's address
	if err != nil {
		return nil, fmt.Errorf("container: Docker does not answer: %w", err)
	}
	docker, ok := provider.Client().(*testcontainers.DockerClient)
	if !ok {
		return nil, fmt.Errorf("container: unexpected Docker client %T", provider.Client())
	}
	if err := removeLeftovers(ctx, docker.Client); err != nil {
		return nil, fmt.Errorf("container: remove leftovers: %w", err)
	}
	return docker.Client, nil
})

// sharesNetwork reports whether a container can use this machine's loopback interface, because its engine runs on the
// same kernel and as root. Otherwise a proxy of the engine copies every byte to and from the port that it publishes.
var sharesNetwork = sync.OnceValue(func() bool {
	docker, err := dockerClient()
	if err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	engine, err := docker.Info(ctx, client.InfoOptions{})
	kernel, _ := os.ReadFile("/proc/sys/kernel/osrelease") // of Linux
	return err == nil && engine.Info.KernelVersion == strings.TrimSpace(string(kernel)) &&
		!slices.Contains(engine.Info.SecurityOptions, "name=rootless")
})

// startPresentImage runs the first image that Docker has: the one the environment names, the official one, the one
// that hack/setup.sh built.
func startPresentImage(ctx context.Context, k kind, o Options) (*Server, error) {
	if o.Binary {
		return nil, errors.New("container: this test needs a local binary")
	}
	docker, image, err := presentImage(ctx, k)
	if err != nil {
		return nil, err
	}
	return startImage(ctx, docker, k, o, image)
}

func presentImage(ctx context.Context, k kind) (*client.Client, string, error) {
	images := slices.DeleteFunc([]string{k.official, k.built}, func(s string) bool { return s == "" })
	if named := os.Getenv(k.variable("IMAGE")); named != "" {
		images = []string{named}
	}
	if len(images) == 0 {
		return nil, "", errors.New("container: no image is known of it")
	}
	docker, err := dockerClient()
	if err != nil {
		return nil, "", err
	}
	for _, image := range images {
		_, err := docker.ImageInspect(ctx, image)
		if errdefs.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, "", fmt.Errorf("container: inspect image %s: %w", image, err)
		}
		return docker, image, nil
	}
	return nil, "", fmt.Errorf("container: Docker has no image %s", strings.Join(images, " or "))
}

func startPulledImage(ctx context.Context, k kind, o Options) (*Server, error) {
	if o.Binary || k.official == "" {
		return nil, errors.New("pull: no image for this test")
	}
	docker, err := dockerClient()
	if err != nil {
		return nil, errors.New("pull: no Docker to pull with")
	}
	image := k.official
	if named := os.Getenv(k.variable("IMAGE")); named != "" {
		image = named
	}
	pulling, cancel := context.WithTimeout(ctx, pullTimeout)
	defer cancel()
	res, err := docker.ImagePull(pulling, image, client.ImagePullOptions{})
	if err == nil {
		err = res.Wait(pulling)
	}
	if err != nil {
		return nil, fmt.Errorf("container: pull %s: %w", image, err)
	}
	return startImage(ctx, docker, k, o, image)
}

func startImage(ctx context.Context, docker *client.Client, k kind, o Options, image string) (*Server, error) {
	port, err := reservePort()
	if err != nil {
		return nil, err
	}
	c := &container{docker: docker, image: image, port: port, inside: k.port, files: o.Files, folder: o.Folder, host: o.Binary || sharesNetwork()}
	listen := "0.0.0.0"
	if c.host {
		listen, c.inside = "127.0.0.1", port.port
	}
	c.cmd = append(k.args(listen, c.inside, "", o), o.Args...)
	if o.TLS != nil {
		c.files = append(c.files, o.TLS.files()...)
	}
	return launch(ctx, k, o, c, port, "container "+image)
}

func (c *container) start(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := c.startOnce(ctx)
	if err != nil && strings.Contains(err.Error(), "already in use") {
		// Some engines want the port to themselves.
		c.port.release()
		err = c.startOnce(ctx)
	}
	c.up = err == nil
	return err
}

func (c *container) startOnce(ctx context.Context) error {
	if c.tc == nil {
		tc, err := testcontainers.GenericContainer(ctx, testcontainers.GenericContainerRequest{ContainerRequest: c.request()})
		c.tc = tc
		if err != nil {
			return fmt.Errorf("%w (without a registry set TESTCONTAINERS_RYUK_DISABLED=true)", err)
		}
	}
	_, err := c.docker.ContainerStart(ctx, c.tc.GetContainerID(), client.ContainerStartOptions{})
	return err
}

func (c *container) request() testcontainers.ContainerRequest {
	inside := fmt.Sprintf("%d/tcp", c.inside)
	req := testcontainers.ContainerRequest{
		Image:        c.image,
		Cmd:          c.cmd,
		ExposedPorts: []string{inside},
		Labels:       map[string]string{labelOwner: owner()},
		HostConfigModifier: func(h *dockercontainer.HostConfig) {
			if c.folder != "" {
				h.Binds = append(h.Binds, c.folder+":"+c.folder)
			}
			if c.host {
				h.NetworkMode = "host"
				return
			}
			h.PortBindings = network.PortMap{network.MustParsePort(inside): {
				{HostIP: netip.MustParseAddr("127.0.0.1"), HostPort: strconv.Itoa(c.port.port)},
			}}
		},
	}
	if c.host {
		req.ExposedPorts = nil
	}
	for _, name := range c.files {
		// Readable by whatever user the server becomes.
		req.Files = append(req.Files, testcontainers.ContainerFile{HostFilePath: name, ContainerFilePath: name, FileMode: 0o644})
	}
	return req
}

func (c *container) running() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tc == nil || !c.up {
		return false
	}
	res, err := c.docker.ContainerInspect(context.Background(), c.tc.GetContainerID(), client.ContainerInspectOptions{})
	return err == nil && res.Container.State != nil && res.Container.State.Running
}

func (c *container) stop(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.unpause(ctx); err != nil {
		return err
	}
	_, err := c.docker.ContainerStop(ctx, c.tc.GetContainerID(), client.ContainerStopOptions{})
	c.up = false
	return err
}

func (c *container) kill(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	// The engine does not kill a frozen container; nothing is promised of the instant between.
	if err := c.unpause(ctx); err != nil {
		return err
	}
	gone := c.docker.ContainerWait(ctx, c.tc.GetContainerID(), client.ContainerWaitOptions{Condition: dockercontainer.WaitConditionNotRunning})
	if _, err := c.docker.ContainerKill(ctx, c.tc.GetContainerID(), client.ContainerKillOptions{Signal: "KILL"}); err != nil && !errdefs.IsConflict(err) {
		return err
	}
	c.up = false
	select {
	case <-gone.Result:
		return nil
	case err := <-gone.Error:
		return err
	}
}

func (c *container) pause(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := until(ctx, func(ctx context.Context) error { // the engine cannot freeze a container that is starting a process
		_, err := c.docker.ContainerPause(ctx, c.tc.GetContainerID(), client.ContainerPauseOptions{})
		if err != nil && !strings.Contains(err.Error(), "unable to freeze") {
			return final{err}
		}
		return err
	})
	c.paused = err == nil
	return err
}

func (c *container) resume(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.unpause(ctx)
}

func (c *container) unpause(ctx context.Context) error {
	if !c.paused {
		return nil
	}
	_, err := c.docker.ContainerUnpause(ctx, c.tc.GetContainerID(), client.ContainerUnpauseOptions{})
	c.paused = err != nil
	return err
}

func (c *container) remove(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tc == nil {
		return nil
	}
	err := c.unpause(ctx)
	_, removed := c.docker.ContainerRemove(ctx, c.tc.GetContainerID(), client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
	c.up = false
	if errdefs.IsNotFound(removed) {
		return nil
	}
	return errors.Join(err, removed)
}

func (c *container) log() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tc == nil {
		return "\t(no container)"
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	r, err := c.tc.Logs(ctx)
	if err != nil {
		return "\t" + err.Error()
	}
	defer r.Close()
	var b bytes.Buffer
	_, _ = io.Copy(&b, r)
	return lastLines(b.String())
}
