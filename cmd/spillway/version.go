package main

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func newVersionCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the version, the commit and the Go version of the build",
		Example: "  spillway version\n  spillway version -o json",
		GroupID: "prepare",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := readBuildInfo()
			if output == outputJSON {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(v) // one line
			}
			if isStructured(output) {
				return printStructured(cmd.OutOrStdout(), output, v)
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), v.format())
			return err
		},
	}
	addOutputFlag(cmd, &output)
	return cmd
}

// buildInfo describes the build of this binary.
type buildInfo struct {
	Version  string `json:"version"`
	Commit   string `json:"commit,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// format returns what `spillway version` prints.
func (b buildInfo) format() string {
	return fmt.Sprintf("spillway %s (%s, %s)", b.Version, b.Go, b.Platform)
}

func readBuildInfo() buildInfo {
	b := buildInfo{Version: version, Commit: commit, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if info, ok := debug.ReadBuildInfo(); ok && b.Commit == "" {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				b.Commit = s.Value
			}
		}
	}
	return b
}
