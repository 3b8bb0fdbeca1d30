package consensus

import "context"

// SwitchProposal starts a switch, with the drain that it consists of.
type SwitchProposal struct {
	SwitchConfig
	DrainProposal
}

// StartSwitch starts a switch, if the safety rules allow its drain when the entry is applied, and returns its number.
func (w *stateWriter) StartSwitch(ctx context.Context, p SwitchProposal) (number uint64, err error) {
	c := p.toCommand()
	c.Kind, c.Switch = kindStartSwitch, &p.SwitchConfig
	r, err := w.proposer.proposeCommand(ctx, c)
	return r.Value, err
}

// SwitchChange is the next step of a switch.
type SwitchChange struct {
	Number uint64     // of the switch
	From   SwitchStep // the present step
	Next   SwitchStep
	By     Attribution // its reason is what the step found
}

// ChangeSwitch records a step of a switch; ErrRefused when the switch has moved on.
func (w *stateWriter) ChangeSwitch(ctx context.Context, x SwitchChange) error {
	c := newCommand(kindStepSwitch)
	c.BasedOn, c.Path, c.Action, c.Actor, c.Reason = x.Number, string(x.From), string(x.Next), x.By.Actor, truncateReason(x.By.Reason)
	_, err := w.proposer.proposeCommand(ctx, c)
	return err
}
