package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/spillway-lb/spillway/internal/admin"
)

func newGetAutoscalingCommand() *cobra.Command {
	var (
		to            adminTarget
		output, model string
	)
	cmd := &cobra.Command{
		Use:     "autoscaling [--server unix:///path/to/local/admin.sock]",
		Short:   "Show how many replicas of each model one local instance recommends, and why",
		Long:    "Show how many replicas of each model one local instance recommends, and why. Each instance of a zone reports the need of\nits own share of the demand: in a zone with several instances, sum NEEDED.",
		Example: "  spillway get autoscaling --server unix:///run/spillway/local-a.sock\n  spillway get autoscaling --model llama-3.1-8b -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := to.chooseLocalInstance(cmd.Context()); err != nil {
				return err
			}
			return to.callNode(cmd.Context(), func(ctx context.Context, c *admin.Client) error {
				a, err := c.GetAutoscaling(ctx, model)
				if err != nil {
					return err
				}
				if output == "json" {
					return printJSON(cmd.OutOrStdout(), a)
				}
				printAutoscaling(cmd.OutOrStdout(), a)
				return nil
			})
		},
	}
	to.addFlags(cmd)
	cmd.Flags().StringVar(&model, "model", "", "show only this model")
	addOutputFlag(cmd, &output)
	return cmd
}

func printAutoscaling(w io.Writer, a *admin.AutoscalingAnswer) {
	fmt.Fprintf(w, "%s\n", a.Node)
	writeTable(w, func(t io.Writer) {
		fmt.Fprintln(t, "MODEL\tDESIRED\tNEEDED\tREADY\tSATURATION\tWAITING\tWAIT\tP50\tP99\tPREFILL tok/s\tDECODE tok/s\tPER REPLICA tok/s")
		for i := range a.Models {
			m := &a.Models[i]
			ready := formatReadyCount(&admin.ModelStatus{Ready: int64(m.Ready), Total: int64(m.Total), Warm: int64(m.Warm), Cold: int64(m.Cold)})
			fmt.Fprintf(t, "%s\t%d\t%.2f\t%s\t%.2f of %.2f\t%d\t%s\t%s\t%s\t%s\t%s\t%s + %s\n", m.Model, m.Desired, m.Needed, ready, m.Saturation, m.Target,
				m.Waiting, formatSeconds(m.PredictedWait), formatSeconds(m.WaitP50), formatSeconds(m.WaitP99), formatCount(int64(m.Demand.Prefill)), formatCount(int64(m.Demand.Decode)),
				formatCount(int64(m.Capacity.Prefill)), formatCount(int64(m.Capacity.Decode)))
		}
	})
}
