package kube

import (
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// poolObject has the fields of an InferencePool (inference.networking.k8s.io/v1) that are used.
type poolObject struct {
	Spec struct {
		Selector struct {
			MatchLabels      map[string]string `json:"matchLabels"`
			MatchExpressions []any             `json:"matchExpressions"`
		} `json:"selector"`
		TargetPorts []struct {
			Number int64 `json:"number"`
		} `json:"targetPorts"`
	} `json:"spec"`
}

func (p *poolObject) readPool() (*inferencePool, error) {
	if len(p.Spec.Selector.MatchLabels) == 0 {
		return nil, errors.New("its selector has no matchLabels: it selects nothing")
	}
	if len(p.Spec.Selector.MatchExpressions) > 0 {
		return nil, errors.New("its selector has matchExpressions, which version v1 does not define: use matchLabels")
	}
	out := &inferencePool{selector: metav1.FormatLabelSelector(&metav1.LabelSelector{MatchLabels: p.Spec.Selector.MatchLabels})}
	for _, t := range p.Spec.TargetPorts {
		if t.Number < 1 || t.Number > 65535 {
			return nil, fmt.Errorf("its target port %d is not between 1 and 65535", t.Number)
		}
		out.ports = append(out.ports, uint16(t.Number))
	}
	if len(out.ports) == 0 || len(out.ports) > 8 {
		return nil, fmt.Errorf("it has %d target ports: 1 to 8 are allowed", len(out.ports))
	}
	return out, nil
}
