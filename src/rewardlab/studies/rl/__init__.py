"""What reward quality does to the policy: policies trained on different rewards, and the page of the results."""
