"""One file a data set; its name is the value of `data=`."""
