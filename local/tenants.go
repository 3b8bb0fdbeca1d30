package local

// weight is a tenant's share of a busy pool beside the others'; 0 is the usual one.
func (o *orders) weight(tenant string) float64 {
	if t := o.spec.Tenant(tenant); t != nil {
		return t.Weight
	}
	return 0
}

// prefixOwner is under whose name a tenant's prompts are remembered: its own, unless the spec puts it in a group.
func (o *orders) prefixOwner(tenant string) string {
	return o.spec.PrefixOwner(tenant)
}
