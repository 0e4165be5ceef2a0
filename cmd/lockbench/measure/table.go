package measure

import (
	"fmt"
	"io"
	"math"
	"text/tabwriter"
	"time"
)

// Table writes the report as text, a table per scenario or kind of growth.
func (r *Report) Table(w io.Writer) {
	all := r.Summaries()
	for _, s := range r.Scenarios {
		if s.growth() {
			continue
		}
		fmt.Fprintf(w, "%s: %s\n", s.Name(), s.About())
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
		head, row := columns(s)
		fmt.Fprintln(t, head)
		for _, sum := range all {
			if sum.Scenario == s {
				fmt.Fprintln(t, row(sum))
			}
		}
		_ = t.Flush() // as for other writes, there is no place to report an error
		fmt.Fprintln(w)
	}
	for _, g := range r.Growth() {
		g.table(w)
	}
}

// columns returns the columns of a scenario. tabwriter needs a tab after each.
func columns(s Scenario) (head string, row func(Summary) string) {
	switch s.Kind {
	case Idle:
		return "TARGET\tROUND TRIP\tOPERATIONS PER WAITER AND MINUTE\tERRORS\t", func(s Summary) string {
			return fmt.Sprintf("%s\t%s\t%s\t%d\t", s.Target, Short(s.Raw), Number(s.PerIdle), s.Errors)
		}
	case Contended, Hot:
		return "TARGET\tROUND TRIP\tHAND-OFF P50\tP99\tP50 IN RTT\tP99 IN RTT\tPER SECOND\tFAIRNESS\tSAME HOLDER\tOPERATIONS\tERRORS\t", func(s Summary) string {
			return fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%.0f %%\t%s\t%d\t", s.Target, Short(s.Raw), Short(s.P50), Short(s.P99),
				Number(s.Ratio), Number(s.Ratio99), Number(s.PerSecond), Number(s.Jain), 100*s.Same, Number(s.PerAcquired), s.Errors)
		}
	}
	return "TARGET\tROUND TRIP\tLOCK+UNLOCK P50\tP99\tP50 IN RTT\tP99 IN RTT\tPER SECOND\tOPERATIONS\tCLIENT CPU µs\tALLOCATIONS\tERRORS\t", func(s Summary) string {
		return fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t", s.Target, Short(s.Raw), Short(s.P50), Short(s.P99),
			Number(s.Ratio), Number(s.Ratio99), Number(s.PerSecond), Number(s.PerAcquired), Number(s.PerClient), Number(s.PerAllocs), s.Errors)
	}
}

// Short writes a duration with about three digits.
func Short(d time.Duration) string {
	switch {
	case d == 0:
		return "-"
	case d >= time.Second:
		return d.Round(10 * time.Millisecond).String()
	case d >= 10*time.Millisecond:
		return d.Round(100 * time.Microsecond).String()
	case d >= time.Millisecond:
		return d.Round(10 * time.Microsecond).String()
	case d >= 10*time.Microsecond:
		return d.Round(time.Microsecond).String()
	}
	return d.Round(10 * time.Nanosecond).String()
}

// Number writes a figure with three digits, "-" if it is NaN.
func Number(v float64) string {
	switch {
	case math.IsNaN(v):
		return "-"
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}
