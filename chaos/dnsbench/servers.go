package main

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"text/template"
	"time"

	"github.com/spillway-lb/spillway/chaos/dnsload"
	"github.com/spillway-lb/spillway/chaos/machine"
)

const (
	name     = "www.geo.test."
	basePort = 5390
	// settling is how long servers are left alone once they answer: databases are tidied up, scopes widened.
	settling = 10 * time.Second
)

// server is one of those that are compared.
type server struct {
	label   string
	program string // found in the path, or the value of an environment variable: COREDNS=/where/it/is
	debian  string // package that holds it
	command []string
	addr    netip.AddrPort
	cmd     *exec.Cmd
}

// servers are ours, which comes first, and its peers. Each has one UDP thread or one processor.
func servers(spillway string) []*server {
	return []*server{
		{label: "spillway", program: spillway, command: []string{"global", "-c", "spillway.yaml"}},
		{label: "gdnsd", program: "gdnsd", debian: "gdnsd", command: []string{"-c", "gdnsd", "start"}},
		{label: "knot", program: "knotd", debian: "knot knot-module-geoip", command: []string{"-c", "knot.conf"}},
		{label: "coredns", program: "coredns", command: []string{"-quiet", "-conf", "Corefile"}},      // by its template plugin
		{label: "coredns-file", program: "coredns", command: []string{"-quiet", "-conf", "Corefile"}}, // by its file plugin
	}
}

// files are what the servers read, with {{.Port}}, {{.Dir}} and {{.DB}} to be filled in.
//
//go:embed all:files
var files embed.FS

// find looks the program up. A peer that is not there is left out.
func (s *server) find() error {
	path, err := exec.LookPath(s.program)
	if err == nil {
		s.program, err = filepath.Abs(path)
	}
	switch {
	case err == nil:
		return nil
	case s.debian != "":
		return fmt.Errorf("%s is not installed (Debian: apt-get install --no-install-recommends %s)", s.program, s.debian)
	}
	return fmt.Errorf("%s is not in the path", s.program)
}

// render writes the server's files.
func (s *server) render(dir, db string) error {
	data := struct {
		Dir, DB string
		Port    uint16
	}{dir, db, s.addr.Port()}
	return fs.WalkDir(files, "files/"+s.label, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		t, err := template.ParseFS(files, path)
		if err != nil {
			return err
		}
		var out bytes.Buffer
		if err := t.Execute(&out, data); err != nil {
			return err
		}
		rel, err := filepath.Rel("files/"+s.label, path)
		if err != nil {
			return err
		}
		to := filepath.Join(dir, rel)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		return os.WriteFile(to, out.Bytes(), 0o644)
	})
}

// start runs the server on one core until stop.
func (s *server) start(dir, db string, core int) error {
	if err := os.MkdirAll(filepath.Join(dir, "run"), 0o755); err != nil {
		return err
	}
	if err := s.render(dir, db); err != nil {
		return err
	}
	if s.label == "spillway" {
		certs := exec.Command(s.program, "certs", "dev", "--dir", filepath.Join(dir, "certs"), "global/g1")
		if out, err := certs.CombinedOutput(); err != nil {
			return fmt.Errorf("making certificates: %w: %s", err, out)
		}
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return err
	}
	defer log.Close()
	s.cmd = exec.Command("taskset", append([]string{"-c", fmt.Sprint(core), s.program}, s.command...)...)
	s.cmd.Dir, s.cmd.Stdout, s.cmd.Stderr = dir, log, log
	machine.DieWithUs(s.cmd)
	return s.cmd.Start()
}

// ready waits until the server answers rightly.
func (s *server) ready(w *world, within time.Duration) error {
	l := dnsload.Load{Server: s.addr, Name: name, Subnets: w.asked[:1], Want: w.region, Rate: 200}
	for end := time.Now().Add(within); time.Now().Before(end); {
		if r, err := l.Run(contextOfRun, 50*time.Millisecond); err != nil {
			return err
		} else if r.Answered > 0 && r.Wrong == 0 {
			return nil
		}
	}
	return errors.New("it does not answer; its log is " + filepath.Join(s.cmd.Dir, "log"))
}

func (s *server) stop() {
	if s.cmd != nil && s.cmd.Process != nil {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
	}
}
