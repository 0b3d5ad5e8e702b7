use callwright as _;
