package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/template"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"
)

// The values of -o. A template is written as template=TEXT.
const (
	outputTable    = "table"
	outputWide     = "wide"
	outputJSON     = "json"
	outputYAML     = "yaml"
	templatePrefix = "template="
)

const outputUsage = "table, wide (more columns), json, yaml or template=TEXT (a Go template over the JSON fields)"

// addOutputFlag adds -o table|wide|json|yaml|template=TEXT.
func addOutputFlag(cmd *cobra.Command, output *string) {
	cmd.Flags().StringVarP(output, "output", "o", outputTable, outputUsage)
	panicOnError(cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{outputTable, outputWide, outputJSON, outputYAML, templatePrefix}, cobra.ShellCompDirectiveNoFileComp)))
	cmd.PreRunE = func(*cobra.Command, []string) error { return checkOutput(*output) }
}

func checkOutput(output string) error {
	if text, ok := strings.CutPrefix(output, templatePrefix); ok {
		_, err := parseOutputTemplate(text)
		return err
	}
	switch output {
	case outputTable, outputWide, outputJSON, outputYAML:
		return nil
	}
	return newUsageMistake(fmt.Errorf("unknown output %q: write -o table, wide, json, yaml or template=TEXT", output))
}

// isStructured reports whether an output is for programs and not a table.
func isStructured(output string) bool { return output != outputTable && output != outputWide }

// printStructured writes v as JSON, as YAML or by a template, with the field names of the admin API.
func printStructured(w io.Writer, output string, v any) error {
	if output == outputJSON {
		return printJSON(w, v)
	}
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if source, ok := strings.CutPrefix(output, templatePrefix); ok {
		return printTemplate(w, source, text)
	}
	out, err := yaml.JSONToYAML(text)
	if err != nil {
		return fmt.Errorf("writing the answer as YAML: %w", err)
	}
	_, err = w.Write(out)
	return err
}

func parseOutputTemplate(source string) (*template.Template, error) {
	t, err := template.New("output").Option("missingkey=zero").Funcs(template.FuncMap{"json": encodeCompactJSON}).Parse(source)
	if err != nil {
		return nil, newUsageMistake(fmt.Errorf("-o template: %w\nhint: an example is -o 'template={{range .items}}{{.name}}{{\"\\n\"}}{{end}}'", err))
	}
	return t, nil
}

func encodeCompactJSON(v any) (string, error) {
	b, err := json.Marshal(v)
	return string(b), err
}

func printTemplate(w io.Writer, source string, text []byte) error {
	t, err := parseOutputTemplate(source)
	if err != nil {
		return err
	}
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		return err
	}
	if err := t.Execute(w, v); err != nil {
		return fmt.Errorf("-o template: %w\nhint: -o json shows the fields", err)
	}
	if !strings.HasSuffix(source, "\n") {
		fmt.Fprintln(w)
	}
	return nil
}

// printJSON writes v with the field names of the admin API.
func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// newUsageMistake marks an error as a mistake in the command line: the command exits with exitUsage.
func newUsageMistake(err error) error { return &exitCodeError{err, exitUsage} }
