package openai

// IsUsageOnly exports isUsageOnly.
func IsUsageOnly(data []byte) bool { return isUsageOnly(data) }
