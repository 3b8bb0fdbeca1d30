package config_test

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-lb/spillway/internal/config"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/testkit"
)

var updateGolden = flag.Bool("update", false, "write the golden files again")

// TestMistakesMatchGolden decodes configs with one mistake each, named after it, and compares the printed
// messages.
func TestMistakesMatchGolden(t *testing.T) {
	testkit.CheckFixtures(t, "testdata/mistakes/*.txtar", 80, *updateGolden, func(t *testing.T, f testkit.Fixture) string {
		_, err := config.Decode(f.File, f.Text)
		if err == nil {
			t.Fatal("the config was taken")
		}
		if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("a password is shown:\n%v", err)
		}
		return err.Error() + "\n"
	})
}

func compareGolden(t *testing.T, file, got string) {
	t.Helper()
	if *updateGolden {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("printed (-want +got):\n%s", diff)
	}
}

// TestDescribeConfigMatchesGolden compares the form of a description with a golden file, and requires an explanation of
// each key.
func TestDescribeConfigMatchesGolden(t *testing.T) {
	for _, role := range append(config.RoleNames(), "spec") {
		var b bytes.Buffer
		if err := config.DescribeConfig(&b, role); err != nil {
			t.Fatal(err)
		}
		if role == config.RoleWorker { // the keys and texts of the others are compared with deploy/docs/config-reference.md
			compareGolden(t, "testdata/describe-worker.golden", b.String())
		}
		lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
		for i, line := range lines {
			if !strings.HasPrefix(line, " ") && (i+1 == len(lines) || !strings.HasPrefix(lines[i+1], "    ")) {
				t.Errorf("%s: key %q has no explanation", role, line)
			}
		}
	}
	if err := config.DescribeConfig(&bytes.Buffer{}, "globl"); err == nil || !strings.Contains(err.Error(), `did you mean "global"?`) {
		t.Errorf("describing an unknown role: %v", err)
	}
}

// TestDescribeConfigListsEveryPolicy: the description of routing.policy lists all policies.
func TestDescribeConfigListsEveryPolicy(t *testing.T) {
	var b bytes.Buffer
	if err := config.DescribeConfig(&b, "spec"); err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(b.String(), "\nrouting.policy  ")
	_, after, _ = strings.Cut(after, "\n")
	line, _, _ := strings.Cut(after, "\n")
	for _, p := range spec.WorkerPolicies() {
		if !regexp.MustCompile(`\b` + p + `\b`).MatchString(line) {
			t.Errorf("routing.policy may be %s, and is described as %q", p, line)
		}
	}
}

// TestExamplesDecode decodes every example of WriteExample.
func TestExamplesDecode(t *testing.T) {
	for role, want := range map[string]any{"global": &config.Global{}, "regional": &config.Regional{}, "local": &config.Local{}, "worker": &config.SimulatedWorker{}} {
		var b bytes.Buffer
		if err := config.WriteExample(&b, role); err != nil {
			t.Fatal(err)
		}
		got, err := config.Decode("/etc/spillway/"+role+".yaml", b.Bytes())
		if err != nil {
			t.Errorf("%v", err)
		}
		if reflect.TypeOf(got) != reflect.TypeOf(want) || config.RoleOf(b.Bytes()) != role {
			t.Errorf("%s reads as %T", role, got)
		}
	}
	var b bytes.Buffer
	if err := config.WriteExample(&b, "spec"); err != nil {
		t.Fatal(err)
	}
	if _, err := spec.Decode("spec.yaml", b.Bytes()); err != nil {
		t.Error(err)
	}
	if config.RoleOf(b.Bytes()) != "" {
		t.Error("a spec names a role")
	}
	if err := config.WriteExample(&b, "planet"); err == nil {
		t.Error("an example for an unknown role")
	}
}

func TestLoadFileFillsDerivedKeys(t *testing.T) {
	dir := t.TempDir()
	text, err := os.ReadFile("testdata/local.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text = bytes.Replace(text, []byte("dir: /var/lib/spillway"), []byte("dir: state\nworkers_file: more.yaml"), 1)
	path := filepath.Join(dir, "l1.yaml")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := config.LoadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want := &config.Local{
		Role: "local", Name: "l1", Region: "fra", Zone: "a", Dir: filepath.Join(dir, "state"),
		TLS:       config.TLSFiles{Cert: filepath.Join(dir, "l1.pem"), Key: filepath.Join(dir, "l1.key"), CA: filepath.Join(dir, "ca.pem")},
		HTTP:      config.LocalHTTP{Listen: "10.0.1.11:7403", Advertise: "10.0.1.11:7403", Fast: true},
		Gateways:  []string{"10.0.1.1:7401"},
		AccessLog: config.AccessLog{Format: "json", Sample: 1}, Decisions: config.DecisionLog{Memory: 16 << 20, MaxBytes: 1 << 30}, Tracing: config.Tracing{Sample: 0.01, Errors: true, FollowParent: true}, Admin: config.Admin{Socket: filepath.Join(dir, "state", "admin.sock")},
		Workers: []config.WorkerEntry{{Name: "w1", URL: "http://10.0.1.21:8000", GPU: "H100", Weight: 1}}, WorkersFile: filepath.Join(dir, "more.yaml"), PrefixIndex: 128 << 20, ResumeTexts: 64 << 20, BodyMemory: 1 << 30, DrainTimeout: 30 * time.Second, ScrapeInterval: time.Second,
		Discover: config.Discovery{Interval: 10 * time.Second, Grace: 2 * time.Minute}, Registration: config.Registration{Lease: 30 * time.Second, MaxWorkers: 256},
		EndpointPicker: config.EndpointPicker{MaxStreams: 10000, Fallbacks: 1},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("read (-want +got):\n%s", diff)
	}
	if _, err := config.LoadFile(filepath.Join(dir, "absent.yaml")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an absent file: %v", err)
	}
	if _, err := config.LoadFile(dir); err == nil {
		t.Error("a folder is taken")
	}
}

func TestLoadFileBoundsRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "big.yaml")
	if err := os.WriteFile(path, bytes.Repeat([]byte("# filler\n"), 1<<19), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := config.LoadFile(path); err == nil || !strings.Contains(err.Error(), "more than the 3145728 that are read") {
		t.Fatalf("error is %v", err)
	}
}

func TestEncodeRoundTrips(t *testing.T) {
	for _, role := range config.RoleNames() {
		text, err := os.ReadFile("testdata/" + role + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		requireRoundTrip(t, text)
	}
}

func requireRoundTrip(t *testing.T, text []byte) {
	t.Helper()
	got, err := config.Decode("/etc/a.yaml", text)
	if err != nil {
		t.Fatal(err)
	}
	again, err := config.Decode("/etc/a.yaml", config.Encode(got))
	if err != nil {
		t.Fatalf("what was written cannot be read: %v\n%s", err, config.Encode(got))
	}
	if diff := cmp.Diff(got, again); diff != "" {
		t.Fatalf("read back (-want +got):\n%s", diff)
	}
}

func TestStandaloneLocalConfig(t *testing.T) {
	got, err := config.Decode("l.yaml", []byte("role: local\nname: l1\nregion: fra\nzone: a\nhttp: {listen: \":0\", plain: true}\nworkers: [{name: w1, url: http://10.0.0.1:8000}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	if l := got.(*config.Local); !l.HTTP.Plain || l.Admin.Socket != "" {
		t.Fatalf("read %+v", l)
	}
}

func FuzzDecode(f *testing.F) {
	// Short seeds: the fuzzer spends its time on minimizing long ones.
	const tier = "name: a\ndir: d\ntls: {cert: c, key: k, ca: a}\n"
	for _, text := range []string{
		"role: worker\nname: a\n", "role: global\n" + tier, "role: regional\nregion: r\npeer: {listen: \"h:1\"}\nglobals: [\"g:1\"]\n" + tier,
		"role: local\nregion: r\nzone: z\nhttp: {listen: \"h:1\"}\ngateways: [\"g:1\"]\nworkers: [{name: w, url: http://w}]\n" + tier,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if _, err := config.Decode("/etc/a.yaml", text); err != nil {
			var e *config.Error
			if !errors.As(err, &e) || len(e.Mistakes) == 0 {
				t.Fatalf("error is %v, want mistakes", err)
			}
			return
		}
		requireRoundTrip(t, text)
	})
}

func TestChangedKeys(t *testing.T) {
	one := &config.Global{Name: "g1", Dir: "/a"}
	one.HTTP.Listen, one.Raft.Peers = "0.0.0.0:80", map[string]string{"g1": "a:1"}
	same := *one
	same.Raft.Peers = map[string]string{"g1": "a:1"}
	if got := config.ChangedKeys(one, &same); len(got) != 0 {
		t.Errorf("equal configs differ in %v", got)
	}
	two := same
	two.Dir, two.HTTP.Listen, two.HTTP.TrustedProxies = "/b", "0.0.0.0:81", []string{"10.0.0.0/8"}
	two.Raft.Peers = map[string]string{"g1": "a:1", "g2": "b:1"}
	got := config.ChangedKeys(one, &two)
	slices.Sort(got)
	if want := []string{"dir", "http.listen", "http.trusted_proxies", "raft.peers"}; !slices.Equal(got, want) {
		t.Errorf("changed %v, want %v", got, want)
	}
	if got := config.ChangedKeys(one, &config.Local{}); !slices.Equal(got, []string{"role"}) {
		t.Errorf("another role: %v", got)
	}
}

func localConfigWith(worker string) string {
	return "role: local\nname: l1\nregion: fra\nzone: a\nhttp: {plain: true, listen: 127.0.0.1:8080}\nworkers:\n  - name: w1\n" + worker
}

// TestInvalidWorkerCredentialsAreRefused: no headers of the connection or of Spillway, no duplicates, TLS
// settings only with https; and no error shows a value.
func TestInvalidWorkerCredentialsAreRefused(t *testing.T) {
	const plain, tls = "    url: http://127.0.0.1:1\n", "    url: https://127.0.0.1:1\n"
	for entry, want := range map[string]string{
		plain + "    headers: {Connection: hunter2}\n":                                         "header Connection is set by the connection or the request",
		plain + "    headers: {content-length: hunter2}\n":                                     "header Content-Length is set by",
		plain + "    headers: {Spillway-Tenant: hunter2}\n":                                    "header Spillway-Tenant is reserved",
		plain + "    header_files: {x-spillway-class: f}\n":                                    "header X-Spillway-Class is reserved",
		plain + "    headers: {\"X Y\": hunter2}\n":                                            "is not a header's name",
		plain + "    headers: {X-A: \"hunter2\\nX-B: y\"}\n":                                   "the value is empty, too long or has characters that no header may have",
		plain + "    headers: {X-A: hunter2}\n    header_files: {x-a: f}\n":                    "header X-A is also set by headers",
		plain + "    api_key_file: f\n    headers: {authorization: hunter2}\n":                 "header Authorization is also set by api_key_file",
		plain + "    tls: {ca: f}\n":                                                           "tls is for https workers",
		tls + "    tls: {cert: f}\n":                                                           "a client certificate needs both tls.cert and tls.key",
		tls + "    tls: {ca: c, cert: f, key: k}\n    headers: {X-Api-Key: hunter2}\n":         "",
		plain + "    api_key_file: f\n    header_files: {x-a: g}\n    headers: {X-B: \"1\"}\n": "",
	} {
		cfg, err := config.Decode("/etc/spillway/l1.yaml", []byte(localConfigWith(entry)))
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: %v", entry, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, want %q", entry, err, want)
		case err != nil && strings.Contains(err.Error(), "hunter2"):
			t.Errorf("the error shows a value: %v", err)
		case err == nil:
			for key, file := range func() map[string]string { a := cfg.(*config.Local).Workers[0].Access(); return a.SecretFiles() }() {
				if filepath.Dir(file) != "/etc/spillway" {
					t.Errorf("%s is %s, which does not count from the config's folder", key, file)
				}
			}
		}
	}
}
