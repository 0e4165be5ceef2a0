package measure

import "os"

// cpuModel is the processor's name where the system tells.
func cpuModel() string {
	b, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	return firstLine(string(b), "model name")
}
