package main

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/tls"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"text/template"
	"time"

	"github.com/spillway-lb/spillway/chaos/machine"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/uplink"
)

const (
	workerPort = 5600
	basePort   = 5610
	portsEach  = 10
)

// system is what stands between clients and the worker: one process or two, one behind the other.
type system struct {
	label  string
	files  string // the folder of its files, where that is not its label
	debian string // package that holds its program
	hops   []*hop // the one that clients reach comes first
	prep   func(s *system, dir string) error
	secure bool // clients speak TLS to it

	port   int
	fixed  string // the address, where nothing is started
	worker string
	dir    string
}

// hop is one process of a system.
type hop struct {
	label   string
	command []string
	pids    []int
	cmd     *exec.Cmd
}

// ours are a local alone and the whole path, without and with TLS at its front door. The mark tells another binary's from
// those that are measured.
func ours(spillway, mark string) []*system {
	path := func(label, gateway, local string, secure bool) *system {
		return &system{
			label: label + mark, files: "path", prep: preparePath, secure: secure,
			hops: []*hop{
				{label: gateway + mark, command: []string{spillway, "regional", "-c", "gateway.yaml"}},
				{label: local + mark, command: []string{spillway, "local", "-c", "local.yaml"}},
			},
		}
	}
	return []*system{
		{label: "local" + mark, files: "local", hops: []*hop{{label: "local" + mark, command: []string{spillway, "local", "-c", "local.yaml"}}}},
		path("path", "gateway", "local of two", false),
		path("secure", "gateway from TLS", "local of secure", true),
	}
}

// theirs are its peers.
func theirs(spillway string) []*system {
	pair := func(label, front, inner string, secure bool) *system {
		return &system{
			label: label, files: "haproxies", debian: "haproxy", secure: secure,
			prep: func(_ *system, dir string) error { return makeCerts(spillway, filepath.Join(dir, "certs")) },
			hops: []*hop{
				{label: front, command: []string{"haproxy", "-db", "-f", "front.cfg"}},
				{label: inner, command: []string{"haproxy", "-db", "-f", "inner.cfg"}},
			},
		}
	}
	return []*system{
		{label: "haproxy", debian: "haproxy", hops: []*hop{{label: "haproxy", command: []string{"haproxy", "-db", "-f", "haproxy.cfg"}}}},
		pair("haproxies", "haproxy to TLS", "haproxy from TLS", false),
		pair("haproxies-secure", "haproxy of TLS", "haproxy behind it", true),
		{label: "nginx", debian: "nginx", hops: []*hop{{label: "nginx", command: []string{"nginx", "-c", "nginx.conf"}}}},
	}
}

// before marks the systems of another binary.
const before = " before"

// comparison holds a hop of ours against one of theirs.
type comparison struct {
	with                 string
	perRequest, perEvent float64 // the most that ours may take of theirs; 0: shown and not held
}

// comparisons by our hop. A local chooses and queues, and a gateway has authentication, limits and choice on besides.
var comparisons = map[string][]comparison{
	"local":            {{"haproxy", 1.5, 1.1}, {"nginx", 0, 0}, {"local" + before, 0, 0}},
	"gateway":          {{"haproxy to TLS", 2, 1.1}, {"haproxy", 2, 1.1}, {"gateway" + before, 0, 0}},
	"gateway from TLS": {{"haproxy of TLS", 2, 1.1}, {"gateway from TLS" + before, 0, 0}},
	"local of two":     {{"haproxy from TLS", 0, 0}, {"haproxy", 0, 0}, {"local of two" + before, 0, 0}},
}

// files are what the programs read.
//
//go:embed all:files
var files embed.FS

// Port is the system's first port, or one of those after it.
func (s *system) Port(after ...int) int {
	port := s.port
	for _, n := range after {
		port += n
	}
	return port
}

// Worker, Dir and KeyHash are what the files name.
func (s *system) Worker() string  { return s.worker }
func (s *system) Dir() string     { return s.dir }
func (s *system) KeyHash() string { return spec.HashKey(apiKey) }

// Secure says that clients speak TLS to it.
func (s *system) Secure() bool { return s.secure }

func (s *system) addr() string {
	if s.fixed != "" {
		return s.fixed
	}
	return fmt.Sprintf("127.0.0.1:%d", s.port)
}

// find says why a system cannot be run; nil when it can.
func (s *system) find() error {
	for _, h := range s.hops {
		path, err := exec.LookPath(h.command[0])
		if err == nil {
			path, err = filepath.Abs(path)
		}
		switch {
		case err == nil:
			h.command[0] = path
		case s.debian != "":
			return fmt.Errorf("%s is not installed (Debian: apt-get install --no-install-recommends %s)", h.command[0], s.debian)
		default:
			return fmt.Errorf("%s is not there: run `make build`", h.command[0])
		}
	}
	return nil
}

// render writes the system's files.
func (s *system) render() error {
	return fs.WalkDir(files, "files/"+cmp.Or(s.files, s.label), func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		t, err := template.ParseFS(files, path)
		if err != nil {
			return err
		}
		var out bytes.Buffer
		if err := t.Execute(&out, s); err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(s.dir, e.Name()), out.Bytes(), 0o644)
	})
}

// start runs the system on cores, such as 0,1, until stop, and waits until it answers.
func (s *system) start(cores string) error {
	if err := os.RemoveAll(s.dir); err != nil {
		return err
	}
	if err := os.MkdirAll(s.dir, 0o755); err != nil {
		return err
	}
	if err := s.render(); err != nil {
		return err
	}
	if s.prep != nil {
		if err := s.prep(s, s.dir); err != nil {
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
		machine.DieWithUs(h.cmd)
		err = h.cmd.Start()
		_ = log.Close() // the process has its own
		if err != nil {
			return err
		}
	}
	if err := s.ready(30 * time.Second); err != nil {
		return err
	}
	for _, h := range s.hops {
		h.pids = family(h.cmd.Process.Pid)
	}
	return nil
}

// ready waits until a request is answered.
func (s *system) ready(within time.Duration) error {
	err := errors.New("it was not asked")
	for end := time.Now().Add(within); time.Now().Before(end) && contextOfRun.Err() == nil; time.Sleep(50 * time.Millisecond) {
		if err = s.ask(); err == nil {
			return nil
		}
	}
	return fmt.Errorf("%s does not answer (its logs are in %s): %w", s.label, s.dir, err)
}

// connect makes a client's connection. Who answers is not looked at: the certificates are this run's own.
func (s *system) connect() (net.Conn, error) {
	c, err := net.Dial("tcp", s.addr())
	if err == nil && s.secure {
		return tls.Client(c, anybody), nil
	}
	return c, err
}

var anybody = &tls.Config{InsecureSkipVerify: true}

func (s *system) ask() error {
	c, err := s.connect()
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(2 * time.Second)); err != nil {
		return err
	}
	if _, err := c.Write(request("")); err != nil {
		return err
	}
	return readAnswer(bufio.NewReader(c))
}

func (s *system) stop() {
	for _, h := range s.hops {
		if h.cmd == nil || h.cmd.Process == nil {
			continue
		}
		for _, pid := range family(h.cmd.Process.Pid) {
			if p, err := os.FindProcess(pid); err == nil {
				_ = p.Kill() // it may be gone
			}
		}
		_ = h.cmd.Wait() // it was killed
		h.cmd = nil
	}
}

// used is what the hop's processes have used so far.
func (h *hop) used() (sum time.Duration, err error) {
	for _, pid := range h.pids {
		d, err := machine.ProcessorTime(pid)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", h.label, err)
		}
		sum += d
	}
	return sum, nil
}

func (h *hop) resident() (sum int64, err error) {
	for _, pid := range h.pids {
		n, err := machine.Resident(pid)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", h.label, err)
		}
		sum += n >> 10
	}
	return sum, nil
}

// makeCerts makes the certificates of both hops, in pieces and together as HAProxy wants them.
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

// preparePath gives the gateway the directive that it starts from: there is no global tier.
func preparePath(s *system, dir string) error {
	if err := makeCerts(s.hops[0].command[0], filepath.Join(dir, "certs")); err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(dir, "spec.yaml"))
	if err != nil {
		return err
	}
	return uplink.Keep{Dir: filepath.Join(dir, "g1")}.Save(&uplink.Directive{Index: 1, SpecVersion: 1, Spec: text})
}
