package main

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"text/template"
	"time"

	"golang.org/x/tools/txtar"

	"github.com/spillway-lb/spillway/chaos/bench/dnsload"
	"github.com/spillway-lb/spillway/chaos/bench/machine"
)

const (
	queryName = "www.geo.test."
	basePort  = 5390
	// settleTime is how long servers settle after their first answer: they clean up databases and widen scopes.
	settleTime = 10 * time.Second
)

// benchServer is one of the compared servers.
type benchServer struct {
	label         string
	program       string // found in the path, or the value of an environment variable: COREDNS=/path/to/coredns
	debianPackage string // package that holds it
	command       []string
	addr          netip.AddrPort
	cmd           *exec.Cmd
}

// listServers are our server, first, and its peers. Each has one UDP thread or one processor.
func listServers(spillway string) []*benchServer {
	return []*benchServer{
		{label: "spillway", program: spillway, command: []string{"global", "-c", "spillway.yaml"}},
		{label: "gdnsd", program: "gdnsd", debianPackage: "gdnsd", command: []string{"-c", "gdnsd", "start"}},
		{label: "knot", program: "knotd", debianPackage: "knot knot-module-geoip", command: []string{"-c", "knot.conf"}},
		{label: "coredns", program: "coredns", command: []string{"-quiet", "-conf", "Corefile"}},      // by its template plugin
		{label: "coredns-file", program: "coredns", command: []string{"-quiet", "-conf", "Corefile"}}, // by its file plugin
	}
}

// configFiles is the archive of the servers' files, in a folder for each, with {{.Port}}, {{.Dir}} and {{.DB}} to be
// filled in.
//
//go:embed servers.txtar
var configFiles []byte

// findProgram looks the program up. An unavailable peer is left out.
func (s *benchServer) findProgram() error {
	path, err := exec.LookPath(s.program)
	if err == nil {
		s.program, err = filepath.Abs(path)
	}
	switch {
	case err == nil:
		return nil
	case s.debianPackage != "":
		return fmt.Errorf("%s is not installed (Debian: apt-get install --no-install-recommends %s)", s.program, s.debianPackage)
	}
	return fmt.Errorf("%s is not in the path", s.program)
}

// renderFiles writes the server's files.
func (s *benchServer) renderFiles(dir, db string) error {
	data := struct {
		Dir, DB string
		Port    uint16
	}{dir, db, s.addr.Port()}
	for _, f := range txtar.Parse(configFiles).Files {
		name, ok := strings.CutPrefix(f.Name, s.label+"/")
		if !ok {
			continue
		}
		t, err := template.New(f.Name).Parse(string(f.Data))
		if err != nil {
			return err
		}
		var out bytes.Buffer
		if err := t.Execute(&out, data); err != nil {
			return err
		}
		to := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(to, out.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// startProcess runs the server on one core until stop.
func (s *benchServer) startProcess(dir, db string, core int) error {
	if err := os.MkdirAll(filepath.Join(dir, "run"), 0o755); err != nil {
		return err
	}
	if err := s.renderFiles(dir, db); err != nil {
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
	machine.KillWithParent(s.cmd)
	return s.cmd.Start()
}

// waitReady waits until the server gives the right answer.
func (s *benchServer) waitReady(w *geoDatabase, within time.Duration) error {
	l := dnsload.QueryLoad{Server: s.addr, Name: queryName, Subnets: w.askedNetworks[:1], WantOctet: w.answerByNetwork, Rate: 200}
	for end := time.Now().Add(within); time.Now().Before(end); {
		if r, err := l.RunFor(contextOfRun, 50*time.Millisecond); err != nil {
			return err
		} else if r.Answered > 0 && r.Wrong == 0 {
			return nil
		}
	}
	return errors.New("it does not answer; its log is " + filepath.Join(s.cmd.Dir, "log"))
}

func (s *benchServer) killProcess() {
	if s.cmd != nil && s.cmd.Process != nil {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
	}
}
