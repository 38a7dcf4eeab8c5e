WORK={}
