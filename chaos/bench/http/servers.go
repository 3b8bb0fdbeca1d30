//go:build !windows

package main

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/tls"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"text/template"
	"time"

	"github.com/spillway-lb/spillway/chaos/bench/machine"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/uplink"
	"golang.org/x/tools/txtar"
)

const (
	workerPort     = 5600
	logPort        = 5601 // takes the log lines of HAProxy with work
	basePort       = 5610
	portsPerSystem = 10
)

// benchSystem is what is between clients and the worker: one process, or two in series.
type benchSystem struct {
	label         string
	fileDir       string        // directory of its files, if that is not its label
	debianPackage string        // package that holds its program
	hops          []*hopProcess // the one that clients connect to is first
	prepare       func(s *benchSystem, dir string) error
	secure        bool // clients connect to it with TLS
	workerCount   int  // of a zone with many workers

	port      int
	fixedAddr string // the address, if nothing is started
	worker    string
	dir       string
}

// hopProcess is one process of a system.
type hopProcess struct {
	label   string
	command []string
	pids    []int
	cmd     *exec.Cmd
}

// ownSystems are a local instance alone and the whole path, without and with TLS on its listener. mark distinguishes
// another binary's systems from the measured ones.
func ownSystems(spillway, mark string) []*benchSystem {
	path := func(label, gateway, local string, secure bool) *benchSystem {
		return &benchSystem{
			label: label + mark, fileDir: "path", prepare: preparePath, secure: secure,
			hops: []*hopProcess{
				{label: gateway + mark, command: []string{spillway, "regional", "-c", "gateway.yaml"}},
				{label: local + mark, command: []string{spillway, "local", "-c", "local.yaml"}},
			},
		}
	}
	return []*benchSystem{
		{label: "local" + mark, fileDir: "local", hops: []*hopProcess{{label: "local" + mark, command: []string{spillway, "local", "-c", "local.yaml"}}}},
		path("path", "gateway", "local of two", false),
		path("secure", "gateway from TLS", "local of secure", true),
	}
}

// peerSystems are the systems of other projects.
func peerSystems(spillway string) []*benchSystem {
	pair := func(label, front, inner string, secure bool) *benchSystem {
		return &benchSystem{
			label: label, fileDir: "haproxies", debianPackage: "haproxy", secure: secure,
			prepare: func(_ *benchSystem, dir string) error { return makeCerts(spillway, filepath.Join(dir, "certs")) },
			hops: []*hopProcess{
				{label: front, command: []string{"haproxy", "-db", "-f", "front.cfg"}},
				{label: inner, command: []string{"haproxy", "-db", "-f", "inner.cfg"}},
			},
		}
	}
	return []*benchSystem{
		{
			label: "haproxy-work", debianPackage: "haproxy",
			hops: []*hopProcess{{label: "haproxy with work", command: []string{"haproxy", "-db", "-f", "haproxy.cfg"}}},
		},
		{label: "haproxy", debianPackage: "haproxy", hops: []*hopProcess{{label: "haproxy", command: []string{"haproxy", "-db", "-f", "haproxy.cfg"}}}},
		pair("haproxies", "haproxy to TLS", "haproxy from TLS", false),
		pair("haproxies-secure", "haproxy of TLS", "haproxy behind it", true),
		{label: "nginx", debianPackage: "nginx", hops: []*hopProcess{{label: "nginx", command: []string{"nginx", "-c", "nginx.conf"}}}},
	}
}

// beforeSuffix marks the systems of another binary.
const beforeSuffix = " before"

// hopComparison compares a hop of ours with one of a peer.
type hopComparison struct {
	peer                       string
	maxPerRequest, maxPerEvent float64 // maximum ratio of ours to theirs; 0: shown without a bound
}

// hopComparisons by our hop. In addition to a proxy's work, a local instance reads the model in the body, chooses, queues and
// counts, and a gateway authenticates, limits and chooses. "haproxy with work" looks the key up in a map, reads the model out
// of the JSON body, counts by key in a stick table, and logs.
var hopComparisons = map[string][]hopComparison{
	"local":            {{"haproxy", 1, 0.9}, {"haproxy with work", 0.75, 0}, {"nginx", 0, 0}, {"local" + beforeSuffix, 0, 0}},
	"gateway":          {{"haproxy to TLS", 1, 0.9}, {"haproxy", 2, 1.1}, {"gateway" + beforeSuffix, 0, 0}},
	"gateway from TLS": {{"haproxy of TLS", 1, 0.9}, {"gateway from TLS" + beforeSuffix, 0, 0}},
	"local of two":     {{"haproxy from TLS", 0, 0}, {"haproxy", 0, 0}, {"local of two" + beforeSuffix, 0, 0}},
}

// pathComparisons compare both hops together, by our system: mutual TLS is between them, and in the second also before them.
var pathComparisons = map[string]hopComparison{
	"path":   {"haproxies", 0.8, 0.75},
	"secure": {"haproxies-secure", 0.8, 0.75},
}

// hopTitles are our hops and systems in words.
var hopTitles = map[string]string{
	"local": "a local instance", "gateway": "a gateway (mutual TLS to its zones)", "gateway from TLS": "a gateway with TLS on both sides",
	"path": "the path of both tiers", "secure": "the path of both tiers, from TLS", "haproxy": "HAProxy", "haproxy with work": "HAProxy with comparable work",
	"haproxy to TLS": "HAProxy to TLS", "haproxy of TLS": "HAProxy with TLS on both sides", "haproxies": "HAProxy twice", "haproxies-secure": "HAProxy twice, from TLS",
}

// configFiles is the archive of the programs' files, in a folder for each system.
//
//go:embed systems.txtar
var configFiles []byte

// Port is the system's first port, or one after it.
func (s *benchSystem) Port(after ...int) int {
	port := s.port
	for _, n := range after {
		port += n
	}
	return port
}

// Worker, Dir and KeyHash are used by the files.
func (s *benchSystem) Worker() string  { return s.worker }
func (s *benchSystem) Dir() string     { return s.dir }
func (s *benchSystem) KeyHash() string { return spec.HashKey(apiKey) }
func (s *benchSystem) Key() string     { return apiKey }
func (s *benchSystem) LogPort() int    { return logPort }

// Secure reports whether clients connect with TLS.
func (s *benchSystem) Secure() bool { return s.secure }

func (s *benchSystem) listenAddr() string {
	if s.fixedAddr != "" {
		return s.fixedAddr
	}
	return fmt.Sprintf("127.0.0.1:%d", s.port)
}

// findPrograms returns why a system cannot be run; nil when it can.
func (s *benchSystem) findPrograms() error {
	for _, h := range s.hops {
		path, err := exec.LookPath(h.command[0])
		if err == nil {
			path, err = filepath.Abs(path)
		}
		switch {
		case err == nil:
			h.command[0] = path
		case s.debianPackage != "":
			return fmt.Errorf("%s is not installed (Debian: apt-get install --no-install-recommends %s)", h.command[0], s.debianPackage)
		default:
			return fmt.Errorf("%s is not there: run `make build`", h.command[0])
		}
	}
	return nil
}

// renderFiles writes the system's files.
func (s *benchSystem) renderFiles() error {
	for _, f := range txtar.Parse(configFiles).Files {
		name, ok := strings.CutPrefix(f.Name, cmp.Or(s.fileDir, s.label)+"/")
		if !ok {
			continue
		}
		t, err := template.New(f.Name).Parse(string(f.Data))
		if err != nil {
			return err
		}
		var out bytes.Buffer
		if err := t.Execute(&out, s); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(s.dir, name), out.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// startProcesses runs the system on cores, such as 0,1, until it is killed, and waits until it answers.
func (s *benchSystem) startProcesses(cores string) error {
	if err := os.RemoveAll(s.dir); err != nil {
		return err
	}
	if err := os.MkdirAll(s.dir, 0o755); err != nil {
		return err
	}
	if err := s.renderFiles(); err != nil {
		return err
	}
	if s.prepare != nil {
		if err := s.prepare(s, s.dir); err != nil {
			return err
		}
	}
	for i, h := range s.hops {
		log, err := os.Create(filepath.Join(s.dir, fmt.Sprint("log", i)))
		if err != nil {
			return err
		}
		args := append([]string{"-c", cores}, h.command...)
		if filepath.Base(h.command[0]) == "nginx" {
			args = append(args, "-p", s.dir)
		}
		h.cmd = exec.Command("taskset", args...)
		h.cmd.Dir, h.cmd.Stdout, h.cmd.Stderr = s.dir, log, log
		machine.KillWithParent(h.cmd)
		err = h.cmd.Start()
		_ = log.Close() // the process has its own descriptor
		if err != nil {
			return err
		}
	}
	if err := s.waitReady(30 * time.Second); err != nil {
		return err
	}
	for _, h := range s.hops {
		h.pids = machine.ProcessTree(h.cmd.Process.Pid)
	}
	return nil
}

// waitReady waits until a request is answered.
func (s *benchSystem) waitReady(within time.Duration) error {
	err := errors.New("it was not queried")
	for end := time.Now().Add(within); time.Now().Before(end) && contextOfRun.Err() == nil; time.Sleep(50 * time.Millisecond) {
		if err = s.probeSystem(); err == nil {
			return nil
		}
	}
	return fmt.Errorf("%s does not answer (its logs are in %s): %w", s.label, s.dir, err)
}

// dialClient opens a client's connection. The server is not authenticated: the certificates are this run's own.
func (s *benchSystem) dialClient() (net.Conn, error) {
	c, err := net.Dial("tcp", s.listenAddr())
	if err == nil && s.secure {
		return tls.Client(c, insecureTLS), nil
	}
	return c, err
}

var insecureTLS = &tls.Config{InsecureSkipVerify: true}

func (s *benchSystem) probeSystem() error {
	c, err := s.dialClient()
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(2 * time.Second)); err != nil {
		return err
	}
	if _, err := c.Write(makeRequest("")); err != nil {
		return err
	}
	return readAnswer(bufio.NewReader(c))
}

func (s *benchSystem) killProcesses() {
	for _, h := range s.hops {
		if h.cmd == nil || h.cmd.Process == nil {
			continue
		}
		for _, pid := range machine.ProcessTree(h.cmd.Process.Pid) {
			if p, err := os.FindProcess(pid); err == nil {
				_ = p.Kill() // it may have ended
			}
		}
		_ = h.cmd.Wait() // it was killed
		h.cmd = nil
	}
}

// cpuTime is the CPU time of the hop's processes so far.
func (h *hopProcess) cpuTime() (sum time.Duration, err error) {
	for _, pid := range h.pids {
		d, err := machine.ProcessorTime(pid)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", h.label, err)
		}
		sum += d
	}
	return sum, nil
}

func (h *hopProcess) residentKB() (sum int64, err error) {
	for _, pid := range h.pids {
		n, err := machine.ResidentBytes(pid)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", h.label, err)
		}
		sum += n >> 10
	}
	return sum, nil
}

// makeCerts makes the certificates of both hops, in separate files and combined as HAProxy needs them.
func makeCerts(spillway, dir string) error {
	cmd := exec.Command(spillway, "certs", "dev", "--dir", dir, "region/r/gateway/g1", "region/r/zone/z/local/l1")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("making certificates: %w: %s", err, out)
	}
	for _, name := range []string{"r-g1", "r-z-l1"} {
		cert, err := os.ReadFile(filepath.Join(dir, name+".pem"))
		if err != nil {
			return err
		}
		key, err := os.ReadFile(filepath.Join(dir, name+".key"))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name+".both"), append(cert, key...), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// preparePath writes the directive that the gateway starts from: there is no global tier.
func preparePath(s *benchSystem, dir string) error {
	if err := makeCerts(s.hops[0].command[0], filepath.Join(dir, "certs")); err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(dir, "spec.yaml"))
	if err != nil {
		return err
	}
	return uplink.DirectiveFile{Dir: filepath.Join(dir, "g1")}.SaveDirective(&uplink.Directive{Index: 1, SpecVersion: 1, Spec: text})
}
