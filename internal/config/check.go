package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/spillway-lb/spillway/internal/config/strict"
	"github.com/spillway-lb/spillway/internal/spec"
)

// secretFiles are the keys that name a file that the node must be able to read, and whether only its user
// should be able to.
var secretFiles = map[string]bool{
	"cert": false, "ca": false, "tls_cert": false, "proxy_ca": false, "key": true, "tls_key": true, "api_key_file": true, "token_file": true,
}

// CheckResult holds the findings of CheckFile other than mistakes.
type CheckResult struct {
	// Kind is the kind of text: "local config", "spec".
	Kind string
	// Warnings are valid settings that are probably unintended, each with its line; nil for none.
	Warnings *Error
}

// CheckFile checks the text of a config file as Decode does, and the files that it names: certificates, keys
// and credentials must be readable. knownGPU reports whether the speed of a GPU type is known.
func CheckFile(name string, text []byte, knownGPU func(string) bool) (CheckResult, error) {
	cfg, err := Decode(name, text)
	c := CheckResult{Kind: RoleOf(text) + " config"}
	if err != nil {
		return c, err
	}
	missing, exposed := fileProblems(reflect.ValueOf(cfg).Elem(), "$")
	if err := placeProblems(name, text, missing); err != nil {
		return c, err
	}
	if l, ok := cfg.(*Local); ok {
		exposed = append(exposed, unknownGPUs(l, knownGPU)...)
	}
	if err := placeProblems(name, text, exposed); !errors.As(err, &c.Warnings) && err != nil {
		return c, err
	}
	return c, nil
}

// placeProblems adds positions to problems.
func placeProblems(name string, text []byte, problems []Problem) error {
	if len(problems) == 0 {
		return nil
	}
	doc, err := strict.Parse(name, text)
	if err != nil {
		return err
	}
	role, _ := doc.TopLevelText("role")
	doc.Decode(newRoleConfig(role))
	doc.ReportProblems(problems)
	return doc.Err()
}

// fileProblems checks every file named by the keys of a value.
func fileProblems(v reflect.Value, path string) (missing, exposed []Problem) {
	look := func(at, file string, secret bool) {
		if file == "" {
			return
		}
		f, err := os.Open(file)
		if err != nil {
			why := err
			if e := (*fs.PathError)(nil); errors.As(err, &e) {
				why = e.Err
			}
			missing = append(missing, Problem{Path: at, Reason: fmt.Sprintf("file %s cannot be read: %v", file, why), Hint: "write the file's path; relative paths count from the config file"})
			return
		}
		defer func() { _ = f.Close() }()
		if st, err := f.Stat(); err == nil && secret && st.Mode().Perm()&0o004 != 0 {
			exposed = append(exposed, Problem{Path: at, Reason: fmt.Sprintf("every user of this machine can read %s", file), Hint: "chmod 600 " + file})
		}
	}
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			return fileProblems(v.Elem(), path)
		}
	case reflect.Slice:
		for i := range v.Len() {
			m, e := fileProblems(v.Index(i), fmt.Sprintf("%s[%d]", path, i))
			missing, exposed = append(missing, m...), append(exposed, e...)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			key, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("yaml"), ",")
			at, f := path+"."+key, v.Field(i)
			if secret, ok := secretFiles[key]; ok && f.Kind() == reflect.String {
				look(at, f.String(), secret)
				continue
			}
			if files, ok := f.Interface().(map[string]string); ok && key == "header_files" {
				for name, file := range files {
					look(at+"."+strict.QuoteKey(name), file, true)
				}
				continue
			}
			m, e := fileProblems(f, at)
			missing, exposed = append(missing, m...), append(exposed, e...)
		}
	}
	return missing, exposed
}

// unknownGPUs warns about GPU types of unknown speed.
func unknownGPUs(c *Local, known func(string) bool) (out []Problem) {
	warn := func(path, gpu string) {
		if gpu != "" && !known(gpu) {
			out = append(out, Problem{
				Path: path, Reason: fmt.Sprintf("unknown GPU type %q: routing assumes a slow GPU until it has measured the worker, within minutes", gpu),
				Hint: "write a type such as H100, A100, L40S or L4, with x4 appended for four GPUs, or leave gpu out",
			})
		}
	}
	for i := range c.Workers {
		warn(fmt.Sprintf("$.workers[%d].gpu", i), c.Workers[i].GPU)
	}
	for i := range c.Discover.DNS {
		warn(fmt.Sprintf("$.discover.dns[%d].gpu", i), c.Discover.DNS[i].GPU)
	}
	for i := range c.Discover.Kubernetes {
		warn(fmt.Sprintf("$.discover.kubernetes[%d].gpu", i), c.Discover.Kubernetes[i].GPU)
	}
	return out
}

// GuessRole returns the role that a text without a role probably has, by its keys; empty if they match a spec
// better, or nothing.
func GuessRole(text []byte) string {
	doc, err := strict.Parse("", text)
	if err != nil {
		return ""
	}
	keys := doc.TopLevelKeys()
	best, most := "", countMatchingKeys(keys, reflect.TypeFor[spec.Spec]())
	for _, role := range []string{RoleLocal, RoleRegional, RoleGlobal, RoleWorker} {
		if n := countMatchingKeys(keys, reflect.TypeOf(newRoleConfig(role)).Elem()); n > most {
			best, most = role, n
		}
	}
	return best
}

// countMatchingKeys counts the keys that a struct has.
func countMatchingKeys(keys []string, t reflect.Type) (n int) {
	for i := range t.NumField() {
		if key, _, _ := strings.Cut(t.Field(i).Tag.Get("yaml"), ","); slices.Contains(keys, key) {
			n++
		}
	}
	return n
}

// MissingRoleError returns the mistake of a config file without a role that looks like one of role.
func MissingRoleError(name string, text []byte, role string) error {
	doc, err := strict.Parse(name, text)
	if err != nil {
		return err
	}
	doc.ReportProblems([]Problem{{Path: "$", Reason: "the role is missing: the keys are those of role " + role, Hint: "write role: " + role + " as the first line of " + filepath.Base(name)}})
	return doc.Err()
}
