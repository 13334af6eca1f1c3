"""Meta-World: fifty table-top tasks of one arm, each with a scripted expert and exact states."""
