package provision

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// The flavours of ZooKeeper that the tests know.
const (
	ZooKeeper38 = "zookeeper-3-8"
	ZooKeeper39 = "zookeeper-3-9"
	// AnyZooKeeper is the current version or whatever is installed here, for tests to which the version does not matter.
	AnyZooKeeper = "zookeeper"
)

// ZooKeeperFlavours returns the flavours that every test against ZooKeeper should run with.
func ZooKeeperFlavours() []string { return []string{ZooKeeper38, ZooKeeper39} }

// ZooKeeperTick is the servers' unit of time: sessions last two of it at least.
const ZooKeeperTick = 200 * time.Millisecond

var zookeeperKinds = map[string]kind{
	ZooKeeper38:  zookeeperKind(kind{flavour: ZooKeeper38, extra: true, major: "3.8", official: "zookeeper:3.8"}),
	ZooKeeper39:  zookeeperKind(kind{flavour: ZooKeeper39, major: "3.9", official: "zookeeper:3.9", built: "interlock-test/zookeeper:3.9"}),
	AnyZooKeeper: zookeeperKind(kind{flavour: AnyZooKeeper, official: "zookeeper:3.9", built: "interlock-test/zookeeper:3.9"}),
}

func zookeeperKind(k kind) kind {
	k.service = "zookeeper"
	k.port = 2181
	k.url = func(addr string, _ Options) string { return "zk://" + addr }
	k.probe = zookeeperProbe
	return k
}

// zookeeperConfig is small, quick to end sessions, and lets a session last long if it is asked to.
func zookeeperConfig(host string, port int, dir string, extra []string) string {
	return strings.Join(append([]string{
		fmt.Sprintf("tickTime=%d", ZooKeeperTick.Milliseconds()),
		"initLimit=15", "syncLimit=8",
		"dataDir=" + dir,
		fmt.Sprintf("clientPort=%d", port), "clientPortAddress=" + host,
		"maxSessionTimeout=600000", "maxClientCnxns=0",
		"4lw.commands.whitelist=*", "admin.enableServer=false",
		"preAllocSize=1024", "snapCount=100000",
		"forceSync=no", // what is written outlives the process, which is all that ends here
	}, extra...), "\n") + "\n"
}

// NewZooKeeper starts a server for this test alone, which may stop, pause, kill and restart it, with further lines of
// configuration. It keeps its data over a restart, and ends with the test.
func NewZooKeeper(t testing.TB, flavour string, config ...string) *Server {
	t.Helper()
	return NewZooKeeperLogging(t, flavour, "", config...)
}

// NewZooKeeperLogging is [NewZooKeeper] with the log of transactions in that folder of this machine.
func NewZooKeeperLogging(t testing.TB, flavour, folder string, config ...string) *Server {
	t.Helper()
	if folder != "" {
		config = append(config, "dataLogDir="+folder)
	}
	k, ok := zookeeperKinds[flavour]
	if !ok {
		t.Fatalf("provision: flavour %q: want %q, %q or %q", flavour, ZooKeeper38, ZooKeeper39, AnyZooKeeper)
	}
	k.leaveOut(t)
	s, err := startZooKeeper(k, t.TempDir(), folder, config)
	if err != nil {
		unavailable(t, k, err)
	}
	s.endWith(t)
	record(k.flavour, s.Version, s.Source)
	return s
}

func startZooKeeper(k kind, dir, folder string, config []string) (*Server, error) {
	ctx, cancel := context.WithTimeout(context.Background(), pullTimeout+2*startTimeout)
	defer cancel()
	// A container reads its configuration from a copy of a file.
	file := filepath.Join(dir, "zoo.cfg")
	var unwritten error
	k.args = func(host string, port int, _ string, _ Options) []string {
		unwritten = os.WriteFile(file, []byte(zookeeperConfig(host, port, "/data", config)), 0o600)
		return []string{"zkServer.sh", "start-foreground", file}
	}
	o := Options{Files: []string{file}, Folder: folder}
	var tried []error
	for _, way := range []func() (*Server, error){
		func() (*Server, error) { return startPresentImage(ctx, k, o) },
		func() (*Server, error) { return startInstalledZooKeeper(ctx, k, config) },
		func() (*Server, error) { return startPulledImage(ctx, k, o) },
	} {
		s, err := way()
		if err == nil {
			return s, nil
		}
		tried = append(tried, unwritten, err)
	}
	return nil, errors.Join(tried...)
}

// installed says where packages put ZooKeeper.
var zookeeperJars = []string{"/usr/share/java/zookeeper.jar", "/usr/share/zookeeper/zookeeper.jar"}

// findZooKeeper returns the Java binary and the class path of the installed version.
func findZooKeeper() (java, classPath string, err error) {
	java, err = exec.LookPath("java")
	if err != nil {
		return "", "", errors.New("binary: java is not on the PATH")
	}
	for _, jar := range zookeeperJars {
		if _, err := os.Stat(jar); err == nil {
			return java, jar, nil
		}
	}
	return "", "", fmt.Errorf("binary: ZooKeeper is not installed (%s)", strings.Join(zookeeperJars, ", "))
}

// startInstalledZooKeeper runs the installed version as a process, in a JVM that starts quickly and stays small.
func startInstalledZooKeeper(ctx context.Context, k kind, config []string) (*Server, error) {
	java, classPath, err := findZooKeeper()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "interlock-"+k.flavour+"-")
	if err != nil {
		return nil, fmt.Errorf("binary: %w", err)
	}
	port, err := reservePort()
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	s, err := launchZooKeeper(ctx, k, java, classPath, dir, port, config)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return s, nil
}

func zookeeperProcess(java, classPath, dir string, port *reservedPort, config []string) (*process, error) {
	file := dir + "/zoo.cfg"
	if err := os.WriteFile(file, []byte(zookeeperConfig("127.0.0.1", port.port, dir, config)), 0o600); err != nil {
		return nil, err
	}
	return &process{binary: java, dir: dir, logName: dir + "/server.log", args: []string{
		"-Xms32m", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", classPath,
		"org.apache.zookeeper.server.quorum.QuorumPeerMain", file,
	}}, nil
}

func launchZooKeeper(ctx context.Context, k kind, java, classPath, dir string, port *reservedPort, config []string) (*Server, error) {
	p, err := zookeeperProcess(java, classPath, dir, port, config)
	if err != nil {
		return nil, err
	}
	s, err := launch(ctx, k, Options{}, p, port, "binary "+classPath)
	if err != nil {
		return nil, err
	}
	s.dir = dir
	return s, nil
}

var (
	zookeeperVersion = regexp.MustCompile(`(?m)^Zookeeper version: (\d+\.\d+\.\d+)`)
	zookeeperMode    = regexp.MustCompile(`(?m)^Mode: (\w+)`)
)

func zookeeperProbe(ctx context.Context, url string, _ Options) (string, error) {
	answer, err := FourLetters(ctx, strings.TrimPrefix(url, "zk://"), "srvr")
	if err != nil {
		return "", err
	}
	version := firstMatch(zookeeperVersion, answer)
	if version == "" {
		return "", fmt.Errorf("srvr names no version: %q", strings.TrimSpace(answer))
	}
	return version, nil
}

// FourLetters asks a ZooKeeper server one of its plain questions, such as srvr, mntr or wchs.
func FourLetters(ctx context.Context, addr, question string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	c, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return "", err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	if _, err := c.Write([]byte(question)); err != nil {
		return "", err
	}
	answer, err := io.ReadAll(c)
	return string(answer), err
}
