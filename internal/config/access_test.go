package config_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/spillway-lb/spillway/internal/config"
)

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
